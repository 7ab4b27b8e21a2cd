"""What an error of the server or of the wire means for the caller: refused, or the outcome is unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import asyncpg
import msgspec

from hawser.errors import (
    ConfigError,
    HawserError,
    IdConflict,
    InvalidJob,
    OutcomeUnknown,
    QueueFull,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from hawser.stores.batches import CANCELLED, ENDED, refusal
from hawser.stores.circles import CIRCLE, CROWDED, CircleFound
from hawser.stores.dependencies import UNKNOWN, unknown
from hawser.stores.postgres.address import unknown_setting

QUEUE_FULL: Final = "HW001"
"""Raised by our own function, with the figures as JSON in the detail."""

ID_CONFLICT: Final = "HW003"
"""The same, with the ids."""

WRONG_ISOLATION: Final = "HW004"
"""Raised by our own function, with the isolation as the detail."""
NO_UPSTREAM: Final = "HW005"
"""The same, with the ids of jobs that cannot be waited for."""

NO_BATCH: Final = "HW006"
"""Raised by our own function, with a batch that takes no more, and why, as JSON in the detail."""

IN_A_CIRCLE: Final = "HW007"
"""The same, with a batch and what waits for it that a new member waits for; null when too much waits for the batch."""

NO_LANE: Final = "HW002"
"""Raised by our own function: a lane that we remember is not there."""

AGAIN: Final = ("40001", "40P01")
"""Serialization failure and deadlock: the server took everything back, and asks to try again."""

UNPREPARED: Final = ("26000", "42P05")
"""A prepared statement is not there, or is there already: another session answers than the one that we prepared it in."""

NO_PARTITION: Final = "23514"
LOCKED: Final = "55P03"
NO_RIGHT: Final = "42501"
NO_TABLES: Final = ("42P01", "3F000", "42883")
"""No such table, schema or function."""

_BROKEN: Final = ("08", "57")
"""Classes of errors after which the connection is unusable: it broke, or the server shuts down or ended our session."""


class OldPrimary(StoreUnavailable):
    """A server acts as the primary although another was promoted since; nothing was written."""


POSTGRES_UNREACHED: Final = (
    *(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError),
    *(asyncpg.InternalClientError, OldPrimary),
)
"""What connecting may raise; the last two when a host answers but takes no writes, or must not get any."""


class DayMissing(StoreError):
    """There is no partition for this day yet; nothing was written."""


class LanesForgotten(StoreUnavailable):
    """The database does not know lanes that it had: it was set back, to a backup or by a crash without syncing."""


class Locked(StoreUnavailable):
    """Another transaction held a lock for longer than this one may wait; nothing was written."""


def must_repeat(error: BaseException) -> bool:
    """Whether the server took everything back and the same statement may well succeed now."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in AGAIN


def is_broken(error: BaseException) -> bool:
    """Whether the connection is unusable."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "08").startswith(_BROKEN) or error.sqlstate == "25006"
    return not isinstance(error, HawserError)


def explain(error: BaseException, where: str, *, writing: bool) -> HawserError:
    """Our error for one that came while a statement was under way."""
    if isinstance(error, HawserError):
        return error
    if isinstance(error, asyncpg.PostgresError) and not (error.sqlstate or "08").startswith(_BROKEN):
        return _refused(error, where)
    if not writing:
        return StoreUnavailable(f"{where} did not answer: {_text(error)}; nothing was written: try again")
    return OutcomeUnknown(f"the connection to {where} broke before the answer came: {_text(error)}; repeat with the same ids")


def cannot_connect(error: BaseException, where: str) -> HawserError:
    """Our error for a connection that was not made; nothing was written then."""
    if isinstance(error, HawserError):
        return error
    if isinstance(error, asyncpg.UndefinedObjectError) and (unknown := re.search(r'"(\w+)"', str(error))):
        return unknown_setting(unknown[1])
    if "unsupported startup parameter" in str(error):
        return pooler(error, where)
    hint = "is the server running, and is the address right?"
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InvalidPasswordError):
        hint = "check the user and the password in the URL"
    elif isinstance(error, asyncpg.InvalidCatalogNameError):
        hint = "make the database first, for example with: createdb NAME"
    elif isinstance(error, asyncpg.InternalClientError):
        hint = "is it a standby that was not promoted?"
    return StoreUnavailable(f"cannot connect to {where}: {_text(error)}; {hint}")


def _refused(error: asyncpg.PostgresError, where: str) -> HawserError:
    """The server said no, so nothing was written."""
    state = error.sqlstate or ""
    if state in REFUSALS:
        return REFUSALS[state](str(error.detail))
    if state == NO_LANE:
        return lanes_forgotten(where)
    if state == NO_PARTITION and "no partition" in str(error):
        return DayMissing(str(error))
    if state == "53100":
        return StoreFull(f"the disk of {where} is full; nothing was written: {error}")
    if state == "25006":
        return StoreReadOnly(f"{where} is read-only (a standby?); nothing was written: {error}")
    if state == LOCKED:
        return Locked(
            f"{where}: a transaction that has not ended takes the same key, or holds a lock; nothing was written: try again"
        )
    if state.startswith(("53", "55")):
        return StoreUnavailable(f"{where} refused for now: {error}; nothing was written: try again")
    return _set_up_wrongly(error, where)


def _set_up_wrongly(error: asyncpg.PostgresError, where: str) -> HawserError:
    """Our error for what lasts until an administrator does something; also for errors that are not known here."""
    state = error.sqlstate or ""
    if state in UNPREPARED:
        return pooler(error, where)
    if state == NO_RIGHT:
        return StoreError(
            f"{where} refused: {error}; nothing was written. Use the role in the URL that owns the schema, or make this one its"
            " owner"
        )
    if state in NO_TABLES:
        return StoreError(f"{where} does not have the tables of this version: {error}; run: hawser migrate --store URL")
    return StoreError(f"{where} refused: {error}; nothing was written")


def queue_full(detail: str) -> QueueFull:
    """Our error for the figures that our function gave."""
    full = msgspec.json.decode(detail)
    return QueueFull(full["queue"], full["depth"], full["max_depth"])


def pooler(error: BaseException, where: str) -> ConfigError:
    """Our error for a pooler that gives us another session from one statement to the next."""
    said = str(error).partition("\n")[0]  # what the driver advises besides cannot be done in a URL
    return ConfigError(
        f"store: {where} seems to be a pooler such as PgBouncer: {said}. Add pooled=yes to the URL: then nothing is kept in the"
        " session"
    )


def id_conflict(detail: str) -> IdConflict:
    """Our error for the ids that our function gave."""
    return IdConflict(*msgspec.json.decode(detail, type=list[str]))


def no_upstream(detail: str) -> InvalidJob:
    """Our error for jobs that cannot be waited for."""
    return unknown(msgspec.json.decode(detail, type=list[str]))


def no_batch(detail: str) -> InvalidJob:
    """Our error for a batch that takes no more."""
    said = msgspec.json.decode(detail)
    return refusal(said["batch"], {"unknown": UNKNOWN, "ended": ENDED, "cancelled": CANCELLED}[said["why"]], said["field"])


def in_a_circle(detail: str) -> InvalidJob:
    """Our error for a member that waits for what in turn waits for its batch."""
    said = msgspec.json.decode(detail)
    return CircleFound(said["batch"], CROWDED if said["id"] is None else CIRCLE, said["id"] or "").refusal()


REFUSALS: Final[Mapping[str, Callable[[str], HawserError]]] = {
    QUEUE_FULL: queue_full,
    ID_CONFLICT: id_conflict,
    NO_UPSTREAM: no_upstream,
    NO_BATCH: no_batch,
    IN_A_CIRCLE: in_a_circle,
}
"""The errors that our own functions raise for what a caller asked, made of their details."""


def lanes_forgotten(where: str) -> LanesForgotten:
    return LanesForgotten(f"{where} was set back to an earlier state (a backup?); nothing was written: try again")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
