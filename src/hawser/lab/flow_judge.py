"""What became of batches, and of jobs that wait for others: pure. `hawser lab flows` is judged by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hawser.batch import Batch, BatchState, NewBatch
from hawser.job import Job, State

FAULTS: Final = (
    "counts_off",
    "ended_wrongly",
    "not_released",
    "released_wrongly",
    "released_twice",
    "released_early",
    "started_early",
    "not_done",
)
"""What must be 0."""


class Flow(NamedTuple):
    """A batch that was made, and what is to become of it."""

    batch: NewBatch
    total: int
    """Its jobs, with those that members add."""
    dies: int = 0
    """Members that die, until they are mended."""
    closed: bool = True

    def ends_as(self, replayed: bool) -> BatchState:
        if not self.closed:
            return BatchState.OPEN
        return BatchState.DEAD if self.dies and not replayed else BatchState.DONE

    def releases(self, replayed: bool) -> dict[str, State]:
        """Where the jobs that it releases end: held ones are ready, those that are not needed cancelled."""
        if not self.closed:
            return {"then": State.READY, "on_success": State.READY, "on_dead": State.READY}
        return {
            "then": State.DONE,
            "on_success": State.READY if self.dies and not replayed else State.DONE,
            "on_dead": State.DONE if self.dies else State.CANCELLED,
        }


class FollowRun(NamedTuple):
    """What a job that follows saw of its batch."""

    left: int
    closed: bool
    dead: int


class FlowRuns(NamedTuple):
    """What handlers wrote down."""

    follows: Mapping[str, Sequence[FollowRun]]
    """By job."""
    starts: Mapping[str, int]
    ends: Mapping[str, int]
    """Of jobs that wait for others: where the first start and the first end stand in the file."""


def read_runs(text: str) -> FlowRuns:
    """The lines of the app; the last may be cut by a kill."""
    follows: dict[str, list[FollowRun]] = {}
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()):
        match line.split():
            case ["follow", id, left, closed, dead]:
                follows.setdefault(id, []).append(FollowRun(int(left), closed == "1", int(dead)))
            case ["start", id]:
                starts.setdefault(id, number)
            case ["end", id]:
                ends.setdefault(id, number)
    return FlowRuns(follows, starts, ends)


def judge_flow(
    flow: Flow, batch: Batch | None, members: Counter[State], jobs: Mapping[str, Job], seen: FlowRuns, *, replayed: bool
) -> Counter[str]:
    """What is wrong with one batch. `members` are the states of its jobs as the store has them one by one."""
    faults: Counter[str] = Counter()
    counted = (flow.total, members[State.DONE], members[State.DEAD], members[State.CANCELLED])
    if batch is None or (batch.total, batch.done, batch.dead, batch.cancelled) != counted or members.total() != flow.total:
        faults["counts_off"] += 1
    if batch is None or batch.state is not flow.ends_as(replayed):
        faults["ended_wrongly"] += 1
    for word, state in flow.releases(replayed).items():
        job = jobs[flow.batch.follow_ups[word].id]
        runs = seen.follows.get(job.id, ())
        if job.state is not state:
            faults["not_released" if state is State.DONE else "released_wrongly"] += 1
        if state is not State.DONE and runs:
            faults["released_wrongly"] += 1
        # Each further start of one that was released once is one that a crash asked for.
        if job.attempt > 1 + job.crashes:
            faults["released_twice"] += 1
        if any(_is_early(word, run) for run in runs):
            faults["released_early"] += 1
    return faults


def _is_early(word: str, run: FollowRun) -> bool:
    return not run.dead if word == "on_dead" else bool(run.left) or not run.closed


def judge_links(links: Iterable[tuple[str, Sequence[str]]], jobs: Mapping[str, Job], seen: FlowRuns) -> Counter[str]:
    """What is wrong with jobs that wait for others, each named with those: by the order of the lines, not by any clock."""
    faults: Counter[str] = Counter()
    for id, upstream in links:
        if id not in jobs or jobs[id].state is not State.DONE or id not in seen.ends:
            faults["not_done"] += 1
            continue
        start = seen.starts.get(id, -1)
        if any(seen.ends.get(each, start + 1) > start for each in upstream):
            faults["started_early"] += 1
    return faults


Outage = tuple[float, float]
"""When a server was away, in seconds since 1970."""


def lags(
    flows: Iterable[Flow], jobs: Mapping[str, Job], last: Mapping[str, float], outages: Sequence[Outage] = ()
) -> list[float]:
    """Seconds from the end of the last member until `then` was due, by the store's clock; of those that ran at once, and whose
    last member did not end while the server was away."""
    found = []
    for flow in flows:
        if any(away <= last.get(flow.batch.id, 0.0) <= back for away, back in outages):
            continue
        job = jobs.get(flow.batch.follow_ups["then"].id)
        if flow.closed and job is not None and job.attempt == 1 and not job.returned and flow.batch.id in last:
            found.append(max(0.0, job.run_at.timestamp() - last[flow.batch.id]))
    return sorted(found)
