"""The batches of the memory store: what each counts, and which of them count a job that is not their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hawser.batch import Batch, BatchState, NewBatch, state_of
from hawser.clock import at
from hawser.job import State
from hawser.stores.batches import CANCELLED, ENDED
from hawser.stores.dependencies import UNKNOWN, UpstreamStanding


class KeptBatch:
    """Mutable, and touched only under the store's lock."""

    __slots__ = (
        "cancelled",
        "closed",
        "counts",
        "created_at",
        "died",
        "ended_at",
        "expected",
        "follow_ups",
        "id",
        "members",
        "name",
        "parent",
        "reason",
        "state",
        "told",
    )

    def __init__(self, new: NewBatch, now: int) -> None:
        self.id = new.id
        self.name = new.name
        self.parent = new.parent
        self.follow_ups = {word: job.id for word, job in new.follow_ups.items()}
        self.created_at = now
        self.members: dict[str, State] = {}
        """Each with the state that it is counted in; ready until it has ended."""
        self.counts = dict.fromkeys((State.READY, State.DONE, State.DEAD, State.CANCELLED), 0)
        self.closed = False
        self.cancelled = False
        self.reason: str | None = None
        self.died = False
        self.ended_at: int | None = None
        self.expected = 0
        """Members that are added in the write that is under way: it does not end before."""
        self.state = BatchState.OPEN
        self.told = self.standing

    @property
    def standing(self) -> UpstreamStanding:
        return UpstreamStanding(self.state.job_state, self.died, batch=True)

    @property
    def closed_to(self) -> str | None:
        """Why no job can be added; None when one can."""
        return CANCELLED if self.cancelled else ENDED if self.ended_at is not None else None

    def add(self, member: str, state: State = State.READY) -> None:
        self.members[member] = state
        self._count(state, +1)

    def move(self, member: str, state: State) -> None:
        """A member comes to another state; what is none does not count."""
        if (before := self.members.get(member)) is not None:
            self._count(before, -1)
            self.add(member, state)

    def drop(self, member: str) -> None:
        if (before := self.members.pop(member, None)) is not None:
            self._count(before, -1)

    def _count(self, state: State, by: int) -> None:
        self.counts[state] += by
        self.died = self.died or (state is State.DEAD and by > 0)

    def judge(self, now: int) -> bool:
        """Find out where it stands; whether others must be told."""
        left, dead, cancelled = (self.counts[state] for state in (State.READY, State.DEAD, State.CANCELLED))
        self.state = state_of(closed=self.closed, left=left + self.expected, dead=dead, cancelled=cancelled)
        before, self.told = self.told, self.standing
        if self.told.state.finished and not before.state.finished:
            self.ended_at = now
        return before != self.told

    def view(self, running: int) -> Batch:
        return Batch(
            id=self.id,
            name=self.name,
            created_at=at(self.created_at),
            total=len(self.members),
            waiting=self.counts[State.READY] - running,
            running=running,
            done=self.counts[State.DONE],
            dead=self.counts[State.DEAD],
            cancelled=self.counts[State.CANCELLED],
            closed=self.closed,
            cancel_asked=self.cancelled,
            reason=self.reason,
            parent=self.parent,
            ended_at=None if self.ended_at is None else at(self.ended_at),
            **self.follow_ups,
        )


class BatchTable:
    """All batches, and by job or batch those that count it without being its own: the parent, and where it holds a key."""

    def __init__(self) -> None:
        self.all: dict[str, KeptBatch] = {}
        self._counted_in: dict[str, list[str]] = {}

    def __contains__(self, id: str) -> bool:
        """Whether a batch counts this one without being its own."""
        return id in self._counted_in

    def put(self, batch: KeptBatch) -> None:
        self.all[batch.id] = batch

    def join(self, batch: KeptBatch, member: str, state: State) -> None:
        """Count what is not its own: a batch inside it, or the job that holds a key."""
        if member not in batch.members:
            batch.add(member, state)
            self._counted_in.setdefault(member, []).append(batch.id)

    def counting(self, member: str) -> Iterator[KeptBatch]:
        return (self.all[id] for id in self._counted_in.get(member, ()) if id in self.all)

    def stand_in(self, before: str, instead: str) -> list[KeptBatch]:
        """A job takes the place of another where that is counted without being the batch's own."""
        batches = list(self.counting(before))
        self._counted_in.pop(before, None)
        for batch in batches:
            batch.drop(before)
            self.join(batch, instead, State.READY)
        return batches

    def against(self, id: str, own: str | None = None) -> str | None:
        """Why no job can be added to a batch; None when one can. The batch of the job that it follows from takes it although it
        has ended before: that job was requeued since, and counts in it."""
        batch = self.all.get(id)
        if batch is None:
            return UNKNOWN
        return None if id == own and not batch.cancelled else batch.closed_to

    def remove(self, batch: KeptBatch) -> None:
        del self.all[batch.id]
        for member in batch.members:
            if batch.id in (counting := self._counted_in.get(member, [])):
                counting.remove(batch.id)
                if not counting:
                    del self._counted_in[member]
        self._counted_in.pop(batch.id, None)

    def page(self, state: BatchState | None, after: str | None) -> Sequence[KeptBatch]:
        """Those in that state behind the cursor, newest first."""
        found = (each for id, each in self.all.items() if after is None or id < after)
        return sorted((each for each in found if state in (None, each.state)), key=lambda each: each.id, reverse=True)
