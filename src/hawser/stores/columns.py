"""The columns of a job, in one place. SQL files name lists of them as `[[list]]`; `expand` writes them out.

[[given]]                the columns whose values come with a job, from its producer
[[along]]                the columns that go along unchanged when a job moves between tables, `given` among them
[[again]]                those of `along` that a requeued job keeps
[[claimed]]              the columns of `given` that a worker is told
[[given of w]]           each with the name of a table in front; so for all lists
[[claimed text of w]]    the same, ids as text
[[given marks]]          a question mark for each: SQLite
[[given from 5]]         `$5::bytea[], …`: arguments of a statement, an array for each: PostgreSQL
[[given parameters]]     `new_body bytea[], …`: parameters of a function
[[given arrays]]         `new_body, …`: the same, used
[[given values of w]]    each with what stands for null; instants are counted from `at`
[[claimed columns]]      `body bytea, …`: columns of a function's answer, ids as text
[[claimed nulls]]        a null of each type, ids as text
[[given gathered of w]]  `array_agg(w.body order by w.n) as body, …`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from hawser.clock import at, from_datetime, to_us
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
    write: Callable[[NewJob, int], Any] | None = None
    """The value to be written for a job that the store accepts at that time; the field itself if nothing is said."""
    moment: bool = False
    """Whether it is an instant that counts from then: PostgreSQL is sent the time until it, and adds its own."""
    given: str = ""
    """The field of `NewJob` that `write` reads."""
    read: Callable[[Any], Any] | None = None
    """The field of `Job` for a value that was read; the value itself if nothing is said."""
    field: str | None = None
    """The field of `NewJob` and `Job`, where SQL could not have a column of that name."""
    claimed: bool = False
    """Whether a worker is told. Claims are the hot path: the stores unpack these by hand, in this order."""


def _tags(job: NewJob, now: int) -> str | None:  # noqa: ARG001  # one shape for all columns
    return _encode(job.tags).decode() if job.tags else None


def _index(job: NewJob, now: int) -> str | None:  # noqa: ARG001  # as above
    return _encode(job.index).decode() if job.index else None


def read_tags(text: str | None) -> tuple[str, ...]:
    """The tags, or the index, as they are told."""
    return _decode(text) if text else ()


def _tick(job: NewJob, now: int) -> int | None:  # noqa: ARG001  # as above
    return None if job.tick is None else from_datetime(job.tick)


def _expires_at(job: NewJob, now: int) -> int | None:
    return None if job.expires is None else now + to_us(job.expires)


def _instant(us: int | None) -> datetime | None:
    return None if us is None else at(us)


GIVEN: Final = (
    Column("body", "bytea", NEVER_USUAL, claimed=True),
    Column("timeout", "double precision", DEFAULT_TIMEOUT, "default_timeout", claimed=True),
    Column("key", "text", claimed=True),
    Column("key_ttl", "double precision", 0.0, "0"),
    Column("parent_id", "uuid", claimed=True),
    Column("confirm_replay", "boolean", False, "false", read=bool),
    Column("schedule", "text", claimed=True),
    Column("batch", "uuid", claimed=True),
    Column("tags", "text", write=_tags, given="tags", read=read_tags, claimed=True),
    Column("tick", "bigint", write=_tick, given="tick", read=_instant, claimed=True),
    Column("group_name", "text", write=lambda job, _: job.group, given="group", field="group", claimed=True),
    Column("expires_at", "bigint", write=_expires_at, given="expires", moment=True, read=_instant),
    Column("indexed", "text", write=_index, given="index", read=read_tags, field="index"),
)

_ALONG: Final = (
    *("id", "lane", "enqueued_at", "started_at", "max_attempts", "returned", "worker", "progress"),
    "packed",
    *(column.name for column in GIVEN),
)
"""Not those that a move may change: due time, attempt, lease, crashes, the wish to cancel and the reason. Nothing writes `packed`
so far: it is there for values that no statement reads, such as a setting that only the worker looks at. It goes along already, so
that a release that writes it may work beside this one, which then loses none of it."""

_LISTS: Final = {
    "given": [*GIVEN],
    "claimed": [column for column in GIVEN if column.claimed],
    "along": [Column(name, "") for name in _ALONG],
    "again": [Column(name, "") for name in _ALONG if name != "expires_at"],
}
_plain = attrgetter(*(column.name for column in GIVEN if column.write is None))
_written: Final = tuple(column.write for column in GIVEN if column.write is not None)
_read = attrgetter(*(column.given for column in GIVEN if column.write is not None))
_BLANK: Final = NewJob(task="blank", body=b"{}")
_USUALLY_READ: Final = _read(_BLANK)
_USUALLY_WRITTEN: Final = tuple(write(_BLANK, 0) for write in _written)
"""What nearly all jobs have: one comparison instead of a call for each column."""
assert [column.write is None for column in GIVEN] == sorted((column.write is None for column in GIVEN), reverse=True)


_SAID: Final = ("task", "body", "id", "queue", "priority")
"""What is said of every job. The fields behind these say nothing of most."""
assert NewJob.__struct_fields__[: len(_SAID)] == _SAID
_rest = itemgetter(slice(len(_SAID), None))
_NOTHING_ELSE: Final = _rest(astuple(_BLANK))


def all_usual(jobs: Sequence[NewJob]) -> bool:
    """Whether nothing was said of these jobs but task, payload, id, queue and priority: one look at each, instead of one for each
    field."""
    return [*map(_rest, map(astuple, jobs))].count(_NOTHING_ELSE) == len(jobs)


def values_of(job: NewJob, now: int) -> tuple[Any, ...]:
    """A job's values for `[[given]]`, in that order: plain ones first, as a tuple made at once."""
    plain: tuple[Any, ...] = _plain(job)
    return plain + (_USUALLY_WRITTEN if _read(job) == _USUALLY_READ else tuple(write(job, now) for write in _written))


def arrays_of(jobs: Iterable[NewJob]) -> list[list[Any] | None]:
    """The values of jobs for `[[given from …]]`: an array for each column, or nothing when it would hold usual values only."""
    jobs = list(jobs)
    return [_array_of(column, jobs) for column in GIVEN]


def usual_arrays_of(jobs: Iterable[NewJob]) -> list[list[Any] | None]:
    """The same of jobs that are all usual."""
    return [[job.body for job in jobs] if column.usual is NEVER_USUAL else None for column in GIVEN]


def _array_of(column: Column, jobs: list[NewJob]) -> list[Any] | None:
    values = [*map(attrgetter(column.given or column.name), jobs)]
    if column.write is not None:
        if values.count(getattr(_BLANK, column.given)) == len(values):
            return None
        values = [column.write(job, 0) for job in jobs]
    return None if values.count(column.usual) == len(values) else values


_ASKED_FOR: Final = tuple(name for name in (column.field or column.name for column in GIVEN) if name in NewJob.__struct_fields__)


def given_fields(job: NewJob) -> dict[str, Any]:
    """The fields of `Job` that are as its producer gave them, for a store that keeps the job itself."""
    return {name: getattr(job, name) for name in _ASKED_FOR}


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
        f"coalesce({table}{column.name}, {column.default})"
        if column.default
        else f"{table}{column.name}{' + at' if column.moment else ''}"
    ),
    "columns": lambda _, column: f"{column.name} {'text' if column.type == 'uuid' else column.type}",
    "nulls": lambda _, column: f"null::{'text' if column.type == 'uuid' else column.type}",
    "gathered": lambda table, column: f"array_agg({table}{column.name} order by {table}n) as {column.name}",
}
