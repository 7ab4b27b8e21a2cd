"""Jobs of the memory store that wait for others: held back, and gone on with when those or their batches have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from hawser.job import State
from hawser.store import BEHIND_READ
from hawser.stores.dependencies import (
    FAR,
    UNKNOWN,
    UpstreamStanding,
    dooms,
    due_when_released,
    is_over,
    reason_of,
    standing_of,
)
from hawser.stores.memory.batches import BatchTable, KeptBatch
from hawser.stores.memory.dependencies import Dependencies
from hawser.stores.memory.depth import Depth
from hawser.stores.memory.ready import ReadyJobs
from hawser.stores.memory.row import Row
from hawser.stores.order import Lane
from hawser.value.upstream import WaitsOn


class UpstreamJobs:
    """What waits for what, and what counts what."""

    _rows: dict[str, Row]
    _ready: ReadyJobs
    _depth: Depth

    def __init__(self) -> None:
        self._dependencies = Dependencies()
        self._batches = BatchTable()
        self._over: deque[tuple[str, UpstreamStanding, str | None]] = deque()
        """Jobs and batches that stand otherwise than before, which others wait for or count; and why those are cancelled that
        wait, if what is told is the end of it."""

    def _make_ready(self, row: Row, run_at: int, now: int) -> None:
        raise NotImplementedError

    def _finish(self, row: Row, now: int) -> None:
        raise NotImplementedError

    def _hold(self, row: Row, upstream: Sequence[str], hold: int, on: WaitsOn) -> str | None:
        """Hold a job back as long as it waits for others; the reason to cancel it, if one of them dooms it."""
        over = {}
        for id in upstream:
            standing = self._standing(id)
            if standing is None:
                return reason_of(id, UNKNOWN)
            over[id] = is_over(standing, on)
            if (end := dooms(standing, on)) is not None:
                return reason_of(id, end, batch=standing.batch)
        if not all(over.values()):
            self._dependencies.add(row.new.id, over.items(), on)
            row.held, row.run_at, row.lane = hold, FAR, Lane.TIMED
        return None

    def _standing(self, id: str) -> UpstreamStanding | None:
        """How a job or a batch stands; None when it is not here."""
        if (row := self._rows.get(id)) is not None:
            return standing_of(row.state)
        kept = self._batches.all.get(id)
        return None if kept is None else kept.standing

    def _cancel_waiting(self, row: Row, reason: str, now: int) -> None:
        """Cancel a job that waits, because it is too late or because of the job that it waited for."""
        self._ready.remove(row)
        self._depth.move(row, -1)
        row.state, row.reason, row.held = State.CANCELLED, reason, None
        self._depth.tally(now, row.queue, row.task, State.CANCELLED)
        self._finish(row, now)

    def _release(self, row: Row, now: int) -> None:
        """A held job waits for no other any longer: it is due when its own time has passed."""
        assert row.held is not None
        self._ready.remove(row)
        self._depth.move(row, -1)
        run_at, row.held = due_when_released(row.held, now), None
        self._dependencies.drop(row.new.id)
        self._make_ready(row, run_at, now)

    def _tell(self, id: str, standing: UpstreamStanding, now: int, removed: str | None = None) -> None:
        """A job or a batch stands otherwise than before: go on with those that wait for it or count it. A long chain of cancelled
        jobs is no deep recursion."""
        self._over.append((id, standing, removed))
        if len(self._over) > 1:
            return
        while self._over:
            id, standing, removed = self._over[0]
            if removed is None:
                for kept in list(self._batches.counting(id)):
                    kept.move(id, counted_state(standing.state))
                    self._judge(kept, now)
            for row in [self._rows[waiter] for waiter in self._dependencies.waiters(id)]:
                on = self._dependencies.on[row.new.id]
                if is_over(standing, on):
                    if self._dependencies.end(row.new.id, id):
                        self._release(row, now)
                elif (end := dooms(standing, on)) is not None:
                    self._cancel_waiting(row, reason_of(id, removed or end, batch=standing.batch), now)
            if standing.state in (State.DONE, State.CANCELLED):
                self._dependencies.forget(id)
            self._over.popleft()

    def _behind(self, batch: str) -> set[str]:
        """All that waits for a batch, directly or over others."""
        found, left = {batch}, [batch]
        while left and len(found) <= BEHIND_READ:
            id = left.pop()
            row = self._rows.get(id)
            own = row.new.batch if row is not None and not row.state.finished else None
            counting = (kept.id for kept in self._batches.counting(id))
            next_ = {*self._dependencies.waiters(id), *counting, *((own,) if own is not None else ())} - found
            found |= next_
            left += next_
        return found

    def _may_wait(self, ids: Collection[str]) -> list[str]:
        """Those of these that may wait for others: held jobs, and batches."""
        return [id for id in ids if id in self._batches.all or ((row := self._rows.get(id)) is not None and row.held is not None)]

    def _judge(self, kept: KeptBatch, now: int) -> None:
        """Something of a batch has changed: say so if it stands otherwise now."""
        if kept.judge(now):
            self._tell(kept.id, kept.standing, now)

    def _count(self, row: Row, now: int) -> None:
        """A job stands otherwise than before: for its batch, and for those that wait for it or count it."""
        id = row.new.id
        if row.new.batch is not None and (kept := self._batches.all.get(row.new.batch)) is not None:
            kept.move(id, counted_state(row.state))
            self._judge(kept, now)
        if id in self._dependencies or id in self._batches:
            self._tell(id, standing_of(row.state), now)


def counted_state(state: State) -> State:
    """The state in which a batch counts a job."""
    return state if state.finished else State.READY
