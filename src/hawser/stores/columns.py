"""The columns of a job, in one place. SQL files name lists of them as `[[list]]`; `expand` writes them out.

[[given]]                the columns whose values come with a job, from its producer
[[along]]                the columns that go along unchanged when a job moves between tables, `given` among them
[[claimed]]              the columns of `given` that a worker is told
[[given of w]]           each with the name of a table in front; so for all lists
[[claimed text of w]]    the same, ids as text
[[given marks]]          a question mark for each: SQLite
[[given from 5]]         `$5::bytea[], …`: arguments of a statement, an array for each: PostgreSQL
[[given parameters]]     `new_body bytea[], …`: parameters of a function
[[given arrays]]         `new_body, …`: the same, used
[[given values of w]]    each with what stands for null
[[claimed columns]]      `body bytea, …`: columns of a function's answer, ids as text
[[claimed nulls]]        a null of each type, ids as text
[[given gathered of w]]  `array_agg(w.body order by w.n) as body, …`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from hawser.clock import at, from_datetime
from hawser.job import DEFAULT_TIMEOUT, NewJob

NEVER_USUAL: Final = object()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, ...]).decode


class Column(NamedTuple):
    """A column whose value comes with a job. The fields of `NewJob` and `Job` have the same name, or `field`."""

    name: str
    type: str
    """In PostgreSQL."""
    usual: Any = None
    """The value that most jobs have: an array of it alone is not sent to PostgreSQL."""
    default: str | None = None
    """What stands in PostgreSQL for an array that was not sent; null if nothing is said."""
    write: Callable[[NewJob], Any] | None = None
    """The value to be written; the field itself if nothing is said."""
    read: Callable[[Any], Any] | None = None
    """The field of `Job` for a value that was read; the value itself if nothing is said."""
    field: str | None = None
    """The field of `NewJob` and `Job`, where SQL could not have a column of that name."""
    claimed: bool = False
    """Whether a worker is told. Claims are the hot path: the stores unpack these by hand, in this order."""


def _tags(job: NewJob) -> str | None:
    return _encode(job.tags).decode() if job.tags else None


def read_tags(text: str | None) -> tuple[str, ...]:
    """The tags as they are told."""
    return _decode(text) if text else ()


def _tick(job: NewJob) -> int | None:
    return None if job.tick is None else from_datetime(job.tick)


GIVEN: Final = (
    Column("body", "bytea", NEVER_USUAL, claimed=True),
    Column("timeout", "double precision", DEFAULT_TIMEOUT, "default_timeout", claimed=True),
    Column("key", "text", claimed=True),
    Column("key_ttl", "double precision", 0.0, "0"),
    Column("parent_id", "uuid", claimed=True),
    Column("confirm_replay", "boolean", False, "false", read=bool),
    Column("schedule", "text", claimed=True),
    Column("tags", "text", write=_tags, read=read_tags, claimed=True),
    Column("tick", "bigint", write=_tick, read=lambda us: None if us is None else at(us), claimed=True),
    Column("group_name", "text", write=attrgetter("group"), field="group", claimed=True),
)

_ALONG: Final = (
    *("id", "lane", "enqueued_at", "started_at", "max_attempts", "returned", "worker", "progress"),
    *("expires_at", "batch", "packed"),
    *(column.name for column in GIVEN),
)
"""Not those that a move may change: due time, attempt, lease, crashes, the wish to cancel and the reason."""

_LISTS: Final = {
    "given": [*GIVEN],
    "claimed": [column for column in GIVEN if column.claimed],
    "along": [Column(name, "") for name in _ALONG],
}
_plain = attrgetter(*(column.name for column in GIVEN if column.write is None))
_written: Final = tuple(column.write for column in GIVEN if column.write is not None)
assert [column.write is None for column in GIVEN] == sorted((column.write is None for column in GIVEN), reverse=True)


def values_of(job: NewJob) -> tuple[Any, ...]:
    """A job's values for `[[given]]`, in that order: plain ones first, as a tuple made at once."""
    plain: tuple[Any, ...] = _plain(job)
    return (*plain, *(write(job) for write in _written))


def arrays_of(jobs: Iterable[NewJob]) -> list[list[Any] | None]:
    """The values of jobs for `[[given from …]]`: an array for each column, or nothing when it would hold usual values only."""
    jobs = list(jobs)
    arrays = (list(map(column.write or attrgetter(column.name), jobs)) for column in GIVEN)
    return [None if values.count(column.usual) == len(values) else values for column, values in zip(GIVEN, arrays, strict=True)]


def job_fields(row: Any) -> dict[str, Any]:
    """The fields of `Job` in a row that is read by name."""
    return {column.field or column.name: column.read(row[column.name]) if column.read else row[column.name] for column in GIVEN}


_MACRO: Final = re.compile(r"\[\[(?P<list>[a-z]+)(?: (?P<form>[a-z]+))??(?: of (?P<of>\w+)| from (?P<from>\d+))?\]\]")


def expand(text: str) -> str:
    """SQL with its lists of columns written out."""
    return _MACRO.sub(_expanded, text)


def _expanded(match: re.Match[str]) -> str:
    columns, form = _LISTS[match["list"]], match["form"]
    table = f"{match['of']}." if match["of"] else ""
    if match["from"]:
        return ", ".join(f"${n}::{column.type}[]" for n, column in enumerate(columns, int(match["from"])))
    return ", ".join(_FORMS[form](table, column) for column in columns)


_FORMS: Final[dict[str | None, Callable[[str, Column], str]]] = {
    None: lambda table, column: f"{table}{column.name}",
    "marks": lambda _, __: "?",
    "parameters": lambda _, column: f"new_{column.name} {column.type}[]",
    "arrays": lambda _, column: f"new_{column.name}",
    "text": lambda table, column: (
        f"{table}{column.name}::text as {column.name}" if column.type == "uuid" else f"{table}{column.name}"
    ),
    "values": lambda table, column: (
        f"coalesce({table}{column.name}, {column.default})" if column.default else f"{table}{column.name}"
    ),
    "columns": lambda _, column: f"{column.name} {'text' if column.type == 'uuid' else column.type}",
    "nulls": lambda _, column: f"null::{'text' if column.type == 'uuid' else column.type}",
    "gathered": lambda table, column: f"array_agg({table}{column.name} order by {table}n) as {column.name}",
}
