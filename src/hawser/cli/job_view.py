"""A job as an operator sees it: as JSON, as a row, and in full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec

from hawser.cli import show
from hawser.cli.format import ago, clean, duration, instant, now
from hawser.cli.show import Cell, TableColumn
from hawser.job import FOREVER, UNTIL_START, Attempt, Job, State
from hawser.store import Page, Pause

_STATE_COLUMN: Final = TableColumn("state", whole=True)

JOB_COLUMNS: Final = (
    TableColumn("id", whole=True),
    TableColumn("task"),
    TableColumn("queue", drop=3),
    _STATE_COLUMN,
    TableColumn("attempt", right=True, drop=2),
    TableColumn("when", whole=True),
    TableColumn("note", flexible=True, drop=4),
)
"""`when` is the time that matters in that state: when it is due, was started, or ended."""

_ATTEMPTS: Final = (
    TableColumn("#", right=True),
    TableColumn("outcome", whole=True),
    TableColumn("started", whole=True),
    TableColumn("took", whole=True, drop=2),
    TableColumn("worker", drop=1),
    TableColumn("error", flexible=True),
)

_ONE_LINE: Final = 100
"""Bytes of JSON that are not spread over several lines."""

_LINES: Final = 60
"""Lines of a payload or result that are shown; --json has them all."""


_BRIEF: Final = 200
"""Bytes of a progress, characters of an error, that a brief list has at most."""


def as_json(job: Job, *, whole: bool) -> dict[str, Any]:
    """The job's own field names; payload, result and progress as the values they are.

    In a list the attempts, with their tracebacks, are left out; `error` is the last one's.
    """
    fields: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(job).items():
        match name:
            case "body":
                fields["payload"] = _value(value)
            case "result_body" | "progress_body":
                fields[name.removesuffix("_body")] = None if value is None else _value(value)
            case "key_ttl":
                fields[name] = {FOREVER: "forever", UNTIL_START: "start"}.get(value, value)
            case "attempts" if not whole:
                fields["error"] = job.errors[-1].error if job.errors else None
            case _:
                fields[name] = value
    return fields


def page_as_json(page: Page, *, brief: bool) -> dict[str, Any]:
    jobs = [_in_brief(job) if brief else as_json(job, whole=False) for job in page.jobs]
    left_out = ["payload", "result", "progress", "error"] if brief else []
    return {"jobs": jobs, "next": page.next, "searched": page.searched, "left_out": left_out}


def _in_brief(job: Job) -> dict[str, Any]:
    """Without payload and result, but with their sizes; without a long progress; with the beginning of a long error."""
    fields = as_json(job, whole=False)
    del fields["payload"], fields["result"]
    fields["payload_size"] = len(job.body)
    fields["result_size"] = None if job.result_body is None else len(job.result_body)
    if len(job.progress_body or b"") > _BRIEF:
        del fields["progress"]
    if fields["error"] is not None and len(fields["error"]) > _BRIEF:
        fields["error"] = f"{fields['error'][:_BRIEF]}…"
    return fields


def _value(body: bytes) -> Any:
    """Stored JSON as it is; anything else as a text."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body.decode(errors="replace")
    return msgspec.Raw(body)


# In a list.


def print_jobs(jobs: Sequence[Job]) -> None:
    at = now()
    show.table(JOB_COLUMNS, [_row(job, at) for job in jobs])


def print_dead(jobs: Sequence[Job]) -> None:
    """Dead ones: the error matters, the state is known."""
    at, state = now(), JOB_COLUMNS.index(_STATE_COLUMN)
    columns = [*JOB_COLUMNS[:state], *JOB_COLUMNS[state + 1 : -1], JOB_COLUMNS[-1]._replace(title="error", drop=0)]
    show.table(columns, [[cell for i, cell in enumerate(_row(job, at)) if i != state] for job in jobs])


def _row(job: Job, at: datetime) -> list[Cell | str]:
    attempt = f"{job.attempt}/{job.max_attempts}" if job.max_attempts < 1_000_000 else f"{job.attempt}"
    return [job.id, job.task, job.queue, show.state(looks(job, at)), attempt, _when(job, at), Cell(_note(job), "dim")]


def looks(job: Job, at: datetime) -> str:
    """Its state, with the ways to look at `ready`."""
    if job.state is not State.READY:
        return job.state.value
    if job.held:
        return "held"
    if job.attempt:
        return "retrying"
    return "scheduled" if job.run_at > at else "ready"


def _when(job: Job, at: datetime) -> str:
    match job.state:
        case State.READY:
            return "" if job.held else ago(job.run_at, at)
        case State.RUNNING:
            return ago(job.started_at or job.run_at, at)
        case State.DONE | State.DEAD | State.CANCELLED:
            return ago(job.finished_at or job.run_at, at)
        case _:
            assert_never(job.state)


def _note(job: Job) -> str:
    """What matters most, in a line."""
    if job.state is State.RUNNING and job.cancel_asked:
        return "asked to stop"
    if job.state is State.RUNNING and job.progress_body is not None:
        return job.progress_body.decode(errors="replace")
    if job.state is State.CANCELLED and job.reason:
        return job.reason
    if job.state is not State.DONE and job.errors:
        return (job.errors[-1].error or "").strip().partition("\n")[0]
    return job.reason or ""


# In full.


def print_job(job: Job, holds: Sequence[str] = ()) -> None:
    """`holds` is what keeps it from running."""
    at = now()
    show.facts(_facts(job, holds, at))
    for name, body in (("payload", job.body), ("progress", job.progress_body), ("result", job.result_body)):
        if body is not None:
            show.heading(name)
            show.block(_pretty(body))
    if job.attempts:
        show.heading("attempts")
        show.table(
            _ATTEMPTS,
            [_attempt(attempt, at) for attempt in job.attempts],
        )
    traced = [attempt for attempt in job.attempts if attempt.traceback]
    if traced:
        show.heading(f"traceback of attempt {traced[-1].number}")
        show.block((traced[-1].traceback or "").rstrip())


def _facts(job: Job, holds: Sequence[str], at: datetime) -> Iterator[tuple[str, Cell | str]]:
    yield "id", Cell(job.id, "bold")
    yield "task", Cell(job.task, "bold")
    yield "queue", job.queue
    yield "state", show.state(looks(job, at))
    yield from (("waits", Cell(text, "bold yellow")) for text in holds)
    yield "attempt", f"{job.attempt} of {job.max_attempts}" + (f", {job.crashes} crashed" if job.crashes else "")
    yield "priority", f"{job.priority}"
    yield "enqueued", instant(job.enqueued_at, at)
    for name, when in (
        ("due", None if job.held else job.run_at),
        ("expires", job.expires_at),
        ("started", job.started_at),
        ("ended", job.finished_at),
    ):
        if when is not None and when != job.enqueued_at:
            yield name, instant(when, at)
    yield "timeout", duration(job.timeout)
    known = {
        "worker": job.worker,
        "lease": job.lease_until and f"number {job.lease}, runs out {ago(job.lease_until, at)}",
        "key": job.key and f"{job.key} (held {_hold(job.key_ttl)})",
        "tags": ", ".join(job.tags),
        "group": job.group,
        "parent": job.parent_id,
        "batch": job.batch,
        "schedule": job.schedule and f"{job.schedule}, {instant(job.tick, at) if job.tick else 'run by hand'}",
        "returned": job.returned and f"{job.returned} times without burning an attempt",
        "cancel": job.cancel_asked and "asked for",
        "reason": job.reason,
    }
    yield from ((name, text) for name, text in known.items() if text)


def _hold(key_ttl: float) -> str:
    if key_ttl == UNTIL_START:
        return "until it has started"
    if math.isinf(key_ttl):
        return "for as long as the job is kept"
    return f"while it is live, at least for {duration(key_ttl)}" if key_ttl else "while it is live"


def pause_words(pause: Pause, at: datetime) -> str:
    """By whom, since when, for how long and why."""
    until = "" if pause.until is None else f", until {instant(pause.until, at)}"
    reason = "" if pause.reason is None else f": {pause.reason}"
    return f"by {pause.by} {ago(pause.since, at)}{until}{reason}"


def _attempt(attempt: Attempt, at: datetime) -> list[Cell | str]:
    took = duration(((attempt.ended_at or at) - attempt.started_at).total_seconds())
    error = (attempt.error or "").strip().partition("\n")[0]
    return [f"{attempt.number}", show.state(attempt.outcome), ago(attempt.started_at, at), took, attempt.worker, error]


def _pretty(body: bytes) -> str:
    value = _value(body)
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.format(body, indent=2 if len(body) > _ONE_LINE else 0).decode()
    lines = value.split("\n")
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"… {len(lines) - _LINES} more lines; --json has them all"]
    return "\n".join(clean(line, 2_000) for line in lines)
