"""A run on its way out of running: as its claim saw it or as it stands, and the arguments that write where its job goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hawser.clock import to_us
from hawser.job import State
from hawser.outcome import Step
from hawser.store import Settlement
from hawser.stores.dependencies import FAR
from hawser.stores.order import lane_of
from hawser.stores.postgres.enqueue_arguments import made_on
from hawser.stores.postgres.lane_catalog import Kind
from hawser.stores.postgres.server import Server
from hawser.value.fingerprint import fingerprint
from hawser.value.ids import is_id

NOWHERE: Final = 0
"""The lane of a job that is not known."""


class RunningRow(NamedTuple):
    """A running job, as far as its next step depends on it. Same order as in `held`."""

    id: str
    lease: int
    attempt: int
    max_attempts: int
    returned: int
    cancel_asked: bool


class LeavingRun(NamedTuple):
    """A run on its way out of running, and where its job goes."""

    run: RunningRow
    step: Step


def leave_arguments(given: int | None, leaving: Sequence[LeavingRun], *, lost: bool) -> tuple[Any, ...]:
    """The runs as the arguments of `leave`."""
    rows = []
    for run, step in leaving:
        attempt, returned = step.attempts_kept(run.attempt), run.returned + (not step.burns)
        failure, hold = step.failure, step.hold
        after = None if hold is not None and hold.event is not None else to_us(step.after)
        rows.append(
            (
                *(run.id, run.lease, run.cancel_asked, step.state.value, _kind(step, attempt)),
                *(after, attempt, returned, step.reason, step.word, step.recorded, step.crashed, step.counts_as),
                *((failure.error, failure.traceback) if failure else (None, None)),
                run.attempt,
                fingerprint((failure.error if failure else None) or step.reason) if step.state is State.DEAD else None,
            )
        )
    return given, lost, *(list(column) for column in zip(*rows, strict=True)), FAR


class JobPosition(NamedTuple):
    """Where a job is whose lease was refused. Same order as in `standing`."""

    lease: int | None
    settled: int | None
    state: str
    due_in: int
    """Microseconds."""
    lane: int
    attempt: int
    max_attempts: int


NOT_THERE: Final = JobPosition(None, None, "", 0, NOWHERE, 0, 0)


async def standings(server: Server, ids: Sequence[str]) -> dict[str, JobPosition]:
    """Where these jobs are, by id."""
    known = [id for id in ids if is_id(id)]
    if not known:
        return {}
    connection = server.connection("settle")
    rows = await connection.rows(server.sql["standing"], known, made_on(known), server.given, writing=False)
    return {id: JobPosition(*rest) for id, *rest in rows}


async def count(server: Server, lanes: Sequence[int], name: str) -> None:
    """Count an event of jobs of these lanes, once for each time that a lane is named."""
    if lanes:
        counts = Counter(lanes)
        asked = list(counts), [name] * len(counts), list(counts.values())
        await server.connection("settle").rows(server.sql["count"], server.given, *asked)


def hinted(settlement: Settlement) -> RunningRow:
    """The run as its claim saw it, when no cancel had been asked."""
    attempt, max_attempts, returned, _ = settlement.hint
    return RunningRow(settlement.id, settlement.lease, attempt, max_attempts, returned, cancel_asked=False)


def _kind(step: Step, attempt: int) -> Kind:
    """Claims may have passed the place of a job that goes back to a time in the past."""
    return Kind.LATE if step.after < 0 else Kind[lane_of(attempt, fresh=False).name]
