"""What an error of the server or of the wire means for the caller: refused, or the outcome is unknown."""

from __future__ import annotations

from typing import Final

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from hawser.errors import (
    HawserError,
    NotAStore,
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

REDIS_UNREACHED: Final = (OSError, TimeoutError, RedisError)
"""What may be raised when no connection comes about, or when one breaks."""

_FOR_NOW: Final = ("LOADING", "MASTERDOWN", "NOREPLICAS", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED")
"""How the answers begin by which a server refuses for a while; the script did not run."""


class NoPrimary(RedisConnectionError):
    """No server that takes writes was found."""


def is_broken(error: BaseException) -> bool:
    """Whether the connection is of no more use. A server whose write no replica confirmed may have been replaced meanwhile."""
    if isinstance(error, OutcomeUnknown):
        return True
    if isinstance(error, (AuthenticationError, RedisConnectionError, RedisTimeoutError)):
        return True
    return not isinstance(error, (ResponseError, HawserError)) or _text(error).startswith(("READONLY", "LOADING", "MASTERDOWN"))


def is_for_now(error: ResponseError) -> bool:
    """Whether the server refuses for a while only."""
    return _text(error).startswith(_FOR_NOW)


def explain(error: BaseException, where: str, *, writing: bool) -> HawserError:
    """Our error for one that came while a call was under way."""
    if isinstance(error, HawserError):
        return error
    if isinstance(error, ResponseError):
        return _refused(error, where)
    if not writing:
        return StoreUnavailable(f"{where} did not answer: {_told(error)}; nothing was written: try again")
    return OutcomeUnknown(f"the connection to {where} broke before the answer came: {_told(error)}; repeat with the same ids")


def cannot_connect(error: BaseException, where: str) -> HawserError:
    """Our error for a connection that was not made; nothing was written then."""
    if isinstance(error, HawserError):
        return error
    if isinstance(error, NoPrimary):
        return StoreUnavailable(f"{where}: {error}")
    hint = "is the server running, and is the address right?"
    if _lacks_right(error):
        hint = "docs/stores.md has the smallest ACL that works"
    elif isinstance(error, (AuthenticationError, AuthorizationError)) or _asks_for_password(error):
        hint = "check the user and the password in the URL"
    elif "LOADING" in str(error):
        hint = "the server reads its log; try again"
    elif "out of range" in str(error):
        hint = "check the number of the database in the URL"
    return StoreUnavailable(f"cannot connect to {where}: {_told(error)}; {hint}")


def _lacks_right(error: BaseException) -> bool:
    """Servers say it in several ways, and the driver takes the word NOPERM off."""
    said = ("NOPERM", "ACL failure", "has no permissions", "can't publish to the channel")
    return isinstance(error, NoPermissionError) or any(words in str(error) for words in said)


def _asks_for_password(error: BaseException) -> bool:
    """The driver takes the word NOAUTH off."""
    return "NOAUTH" in str(error) or "Authentication required" in str(error)


def _refused(error: ResponseError, where: str) -> HawserError:
    """The server said no before the script ran."""
    text = str(error)
    whole = _text(error)
    if "OOM" in whole or "maxmemory" in text:
        return StoreFull(f"the memory of {where} is full; nothing was written: let workers drain it, or raise maxmemory")
    if "MISCONF" in whole:
        return StoreFull(f"{where} cannot write to its disk; nothing was written: {text}")
    if "READONLY" in whole or "read only replica" in text:
        return StoreReadOnly(f"{where} is a replica and takes no writes; nothing was written: write the primary in the URL")
    if "WRONGTYPE" in whole or "wrong kind of value" in text:
        return NotAStore(f"{where} has a key of another type under the namespace: {text}; choose another namespace")
    if _lacks_right(error):
        return StoreError(f"{where} refused: {text}; docs/stores.md has the smallest ACL that works")
    if is_for_now(error):
        return StoreUnavailable(f"{where} refused for now: {text}; nothing was written: try again")
    return StoreError(f"{where} refused: {text}")


def _text(error: BaseException) -> str:
    """With the word in front, which the driver takes off for the errors that it knows."""
    word = {
        "OutOfMemoryError": "OOM ",
        "ReadOnlyError": "READONLY ",
        "BusyLoadingError": "LOADING ",
        "MasterDownError": "MASTERDOWN ",
    }
    return word.get(type(error).__name__, "") + str(error)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
