"""The oracle of batches, of jobs that wait for others, and of those that gather jobs of their own: sets, and what
follows from the states of what is in them.

Nothing is counted as it changes: every count and every state of a batch is read off its members, and what waits is looked at
again and again until nothing moves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hawser.batch import BatchState
from hawser.job import State

TRIES = 2
"""Attempts of each job."""


@dataclass
class FlowJob:
    """A job: where it stands, and what it still waits for, each with what of it will do."""

    batch: str | None = None
    waits: dict[str, str] = field(default_factory=dict)
    state: State = State.READY
    attempt: int = 0
    lease: int = 0
    asked: bool = False
    """Whether its run was asked to stop."""
    waited: bool = False
    """Whether it was made to wait for others."""
    children: tuple[str, ...] = ()
    """The jobs of the gather that its handler has come to, and is not past."""
    gathers: int = 0
    """How many of them it is past."""

    @property
    def held(self) -> bool:
        return self.state is State.READY and bool(self.waits)

    def seen(self) -> tuple[State, bool, bool, str | None]:
        return self.state, self.held, self.asked, self.batch


@dataclass
class FlowBatch:
    """A batch: its members, jobs and batches."""

    parent: str | None = None
    releases: tuple[str, ...] = ()
    members: set[str] = field(default_factory=set)
    closed: bool = False
    cancelled: bool = False
    died: bool = False
    """Whether a member has ever died."""
    ended: bool = False
    """Whether it has ever ended."""


class FlowModel:
    """All jobs and batches of a store."""

    claims = 0

    def __init__(self) -> None:
        self.jobs: dict[str, FlowJob] = {}
        self.batches: dict[str, FlowBatch] = {}

    # How things stand.

    def standing(self, id: str) -> State:
        """Of a job or a batch; a batch that has not ended is ready."""
        return self.state(self.batches[id]).job_state if id in self.batches else self.jobs[id].state

    def counts(self, batch: FlowBatch) -> Counter[State]:
        return Counter(self.standing(member) for member in batch.members)

    def state(self, batch: FlowBatch) -> BatchState:
        counts = self.counts(batch)
        if not batch.closed:
            return BatchState.OPEN
        if counts[State.READY] or counts[State.RUNNING]:
            return BatchState.RUNNING
        if counts[State.DEAD]:
            return BatchState.DEAD
        return BatchState.CANCELLED if counts[State.CANCELLED] else BatchState.DONE

    def takes_more(self, id: str) -> bool:
        batch = self.batches[id]
        return not batch.ended and not batch.cancelled

    def comes_after(self, id: str) -> set[str]:
        """What cannot be before a batch has ended: it, what waits for it, the batches in which that counts, and so on."""
        found, before = {id}, 0
        while before < len(found):
            before = len(found)
            found |= {id for id, job in self.jobs.items() if job.held and not found.isdisjoint(job.waits)}
            live = {id for id in found if id in self.batches or not self.jobs[id].state.finished}
            found |= {id for id, batch in self.batches.items() if not live.isdisjoint(batch.members)}
        return found

    def is_last(self, id: str) -> bool:
        """Whether a batch that is closed has one member left."""
        counts = self.counts(self.batches[id])
        return self.batches[id].closed and counts[State.READY] + counts[State.RUNNING] == 1

    def claimable(self) -> set[str]:
        return {id for id, job in self.jobs.items() if job.state is State.READY and not job.held}

    def shown(self, id: str) -> dict[str, object]:
        """What an operator must see of a batch."""
        batch = self.batches[id]
        counts = self.counts(batch)
        return {
            "total": len(batch.members),
            "waiting": counts[State.READY],
            "running": counts[State.RUNNING],
            "done": counts[State.DONE],
            "dead": counts[State.DEAD],
            "cancelled": counts[State.CANCELLED],
            "state": self.state(batch),
            "closed": batch.closed,
            "cancel_asked": batch.cancelled,
            "ended": batch.ended,
        }

    # What is done.

    def open(self, id: str, follow_ups: dict[str, str], parent: str | None) -> None:
        """`follow_ups`: ids of jobs with what of the batch they wait for."""
        self.batches[id] = FlowBatch(parent, tuple(follow_ups))
        if parent is not None:
            self.batches[parent].members.add(id)
        for job, on in follow_ups.items():
            self.add(job, None, {id: on})
        self.come_to_rest()

    def add(self, id: str, batch: str | None, waits: dict[str, str]) -> None:
        self.jobs[id] = FlowJob(batch, dict(waits), waited=bool(waits))
        if batch is not None:
            self.batches[batch].members.add(id)

    def claim(self, ids: list[str]) -> None:
        for id in ids:
            job = self.jobs[id]
            job.state, job.attempt, job.lease = State.RUNNING, job.attempt + 1, job.lease + 1

    def end(self, id: str, state: State) -> None:
        """A run ends so; ready is a failure, which has no more attempts than it has."""
        job = self.jobs[id]
        if state is State.READY:
            state = State.CANCELLED if job.asked else State.DEAD if job.attempt >= TRIES else State.READY
        job.state, job.asked = state, False
        self.come_to_rest()

    def gather(self, id: str, children: tuple[str, ...]) -> None:
        """A run comes to a gather whose jobs are not all done: it is held for them, unless it was asked to stop."""
        job = self.jobs[id]
        if job.asked:
            self.end(id, State.CANCELLED)
            return
        for child in children:
            if child not in self.jobs:
                self.add(child, job.batch, {})
        job.children, job.waits = children, dict.fromkeys(children, "done")
        job.state, job.attempt = State.READY, 0
        self.come_to_rest()

    def gathered(self, id: str) -> None:
        """A run goes past a gather: all its jobs are done."""
        job = self.jobs[id]
        job.children, job.gathers, job.attempt = (), job.gathers + 1, 1

    def lose_all(self) -> None:
        """Every lease runs out."""
        for id, job in self.jobs.items():
            if job.state is State.RUNNING:
                job.lease += 1
                self.end(id, State.READY)

    def cancel(self, id: str) -> None:
        job = self.jobs[id]
        if job.state is State.READY:
            job.state = State.CANCELLED
        elif job.state is State.RUNNING:
            job.asked = True
        self.come_to_rest()

    def requeue(self, id: str) -> None:
        job = self.jobs[id]
        job.state, job.attempt = State.READY, 0
        job.waits.clear()
        self.come_to_rest()

    def discard(self, id: str) -> None:
        self.jobs[id].state = State.CANCELLED
        self.come_to_rest()

    def close(self, id: str) -> bool:
        was, self.batches[id].closed = self.batches[id].closed, True
        self.come_to_rest()
        return not was

    def cancel_batch(self, id: str) -> bool:
        if self.state(self.batches[id]).job_state.finished:
            return False
        self._cancel_inside(id)
        self.come_to_rest()
        return True

    def _cancel_inside(self, id: str) -> None:
        batch = self.batches[id]
        batch.closed = batch.cancelled = True
        for member in batch.members:
            if member not in self.batches:
                job = self.jobs[member]
                job.asked = job.asked or job.state is State.RUNNING
                job.state = State.CANCELLED if job.state is State.READY else job.state
        for member in batch.members & self.batches.keys():
            if not self.state(self.batches[member]).job_state.finished:
                self._cancel_inside(member)

    # What follows.

    def come_to_rest(self) -> None:
        """Until nothing moves: note deaths and ends of batches, and look at all that waits."""
        while self._moved():
            pass

    def _moved(self) -> bool:
        before = [(batch.died, batch.ended) for batch in self.batches.values()]
        for batch in self.batches.values():
            batch.died = batch.died or self.counts(batch)[State.DEAD] > 0
            batch.ended = batch.ended or self.state(batch).job_state.finished
        moved = before != [(batch.died, batch.ended) for batch in self.batches.values()]
        for job in self.jobs.values():
            if job.held:
                moved = self._looked_at(job) or moved
        return moved

    def _looked_at(self, job: FlowJob) -> bool:
        """Whether it waits for less than before, or no longer at all."""
        before = len(job.waits)
        for id, on in list(job.waits.items()):
            state = self.standing(id)
            died = self.batches[id].died if id in self.batches else state is State.DEAD
            match on:
                case "done" if state is State.CANCELLED:
                    job.state = State.CANCELLED
                case "died" if state.finished and not died:
                    job.state = State.CANCELLED
                case "done" if state is State.DONE:
                    del job.waits[id]
                case "ended" if state.finished:
                    del job.waits[id]
                case "died" if died:
                    del job.waits[id]
        return job.state is State.CANCELLED or len(job.waits) < before
