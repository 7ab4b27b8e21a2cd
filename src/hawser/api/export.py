"""`/jobs/export.csv` and `/jobs/export.ndjson`: all jobs that match, as a file, page by page."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hawser.api.bodies import GroupId, Id, Name, SearchQuery, States, or_none
from hawser.api.call import Call, NoBody, Stream
from hawser.api.listing import Wanted, search, states_of
from hawser.api.problem import Problem
from hawser.api.selection import checked_filter
from hawser.api.views import job_line
from hawser.job import MAX_GROUP, Job
from hawser.redaction import shown

CSV: Final = "text/csv; charset=utf-8"
NDJSON: Final = "application/x-ndjson"

MAX_ROWS: Final = 100_000
"""Jobs in one file: more is a matter for the database itself."""

_EXPORT_PAGE: Final = 500

_EXPORT_COLUMNS: Final = (
    *("id", "task", "queue", "state", "priority", "attempt", "max_attempts", "enqueued_at", "run_at", "started_at"),
    *("finished_at", "worker", "key", "tags", "parent_id", "batch", "schedule", "reason", "error", "payload"),
)

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is run by a spreadsheet: it gets an apostrophe in front."""

_encode = msgspec.json.Encoder().encode


class ExportQuery(SearchQuery):
    """Which jobs, newest first."""

    state: States | UnsetType = UNSET
    group: GroupId | UnsetType = UNSET
    """Dead jobs of one task and kind of error."""
    group_name: Annotated[str, Meta(max_length=MAX_GROUP)] | UnsetType = UNSET
    """Whose jobs: what `/jobs` calls `group`."""
    parent_id: Id | UnsetType = UNSET
    schedule: Name | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = MAX_ROWS


async def as_csv(call: Call[NoBody, ExportQuery]) -> Stream:
    """Jobs that match as CSV, newest first; cells that a spreadsheet would run are quoted."""
    return _stream(call, _csv_rows, CSV, "jobs.csv", _csv_line(_EXPORT_COLUMNS))


async def as_ndjson(call: Call[NoBody, ExportQuery]) -> Stream:
    """Jobs that match as lines of JSON, newest first."""
    return _stream(call, _json_rows, NDJSON, "jobs.ndjson", b"")


def _stream(
    call: Call[NoBody, ExportQuery], rows: Callable[[Sequence[Job]], bytes], media_type: str, name: str, head: bytes
) -> Stream:
    query = call.query
    fields = {each: or_none(getattr(query, each)) for each in query.__struct_fields__ if each != "limit"}
    filters = [checked_filter(call, {**fields, "state": state}) for state in states_of(query.state)]
    disposition = f'attachment; filename="{name}"'.encode()
    listener = call.api.pulse.enter(call.identity)
    return Stream(
        _pages(call, Wanted(filters), rows, head, query.limit),
        lambda: call.api.pulse.leave(listener),
        media_type,
        ((b"content-disposition", disposition),),
    )


async def _pages(
    call: Call[Any, Any], asked: Wanted, rows: Callable[[Sequence[Job]], bytes], head: bytes, limit: int
) -> AsyncGenerator[bytes]:
    """A `Problem` on the way cuts the connection: what was sent must not look like the whole file."""
    if head:
        yield head
    after, left = None, limit
    while left > 0:
        if call.api.stopping.is_set():
            raise Problem(503, "the server is ending")
        await call.api.gate.admit_again(call.identity, call.store)
        page = await search(call.store, asked, after, min(_EXPORT_PAGE, left))
        if page.jobs:
            yield rows([shown(call.app.tasks, job) for job in page.jobs])
        after, left = page.next, left - len(page.jobs)
        if after is None:
            return


def _json_rows(jobs: Sequence[Job]) -> bytes:
    return b"".join(_encode(job_line(job)) + b"\n" for job in jobs)


def _csv_rows(jobs: Sequence[Job]) -> bytes:
    return b"".join(_csv_line([_cell(job, name) for name in _EXPORT_COLUMNS]) for job in jobs)


def _cell(job: Job, name: str) -> str:
    match name:
        case "tags":
            text = ",".join(job.tags)
        case "error":
            text = (job.errors[-1].error or "") if job.errors else ""
        case "payload":
            text = job.body.decode()
        case _:
            value = getattr(job, name)
            if isinstance(value, int):
                return str(value)
            text = "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _csv_line(cells: Sequence[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().encode("utf-8", "replace")
