"""What producers and operators do with the batches of the memory store."""

from __future__ import annotations

from collections import Counter

from hawser.batch import Batch, BatchPage, BatchState, NewBatch
from hawser.clock import to_us
from hawser.job import State
from hawser.store import JOBS_PER_PAGE, Acted, Actor, Retention
from hawser.stores.batches import refusal
from hawser.stores.dedup import check_depth
from hawser.stores.dependencies import REMOVED, UpstreamStanding
from hawser.stores.memory.batches import KeptBatch
from hawser.stores.memory.breakers import Breakers


class Batches(Breakers):
    """What producers and operators do with batches."""

    async def open_batch(self, batch: NewBatch) -> bool:
        with self._lock:
            now, jobs = self._clock.now(), list(batch.follow_ups.values())
            if batch.id in self._batches.all:
                return False
            if batch.parent is not None and (why := self._batches.against(batch.parent)) is not None:
                raise refusal(batch.parent, why, "parent")
            answers, added = self._sort_out(jobs, now, strict=True)
            self._check_batches(jobs, answers)
            check_depth(added, self._limits.max_depth, self._depth.waiting)
            self._batches.put(KeptBatch(batch, now))
            if batch.parent is not None:
                self._batches.join(self._batches.all[batch.parent], batch.id, State.READY)
            for job in added:
                self._add(job, now, job.parent_id)
            return True

    async def close_batch(self, id: str, actor: Actor | None = None) -> Acted:
        with self._lock:
            now, kept = self._clock.now(), self._batches.all.get(id)
            if kept is None:
                return Acted.NOT_FOUND
            if kept.closed:
                return Acted.WRONG_STATE
            kept.closed = True
            self._judge(kept, now)
            if actor is not None:
                self._note("close_batch", f"batch:{id}", 0, actor, now)
        self._bell.ring()
        return Acted.DONE

    async def cancel_batch(self, id: str, actor: Actor) -> Acted:
        with self._lock:
            now, kept = self._clock.now(), self._batches.all.get(id)
            if kept is None:
                return Acted.NOT_FOUND
            if kept.told.state.finished:
                return Acted.WRONG_STATE
            changed, left = 0, [kept]
            while left:
                batch = left.pop()
                changed += self._cancel_members(batch, actor, now)
                inside = (self._batches.all[member] for member in batch.members if member in self._batches.all)
                left += [each for each in inside if not each.told.state.finished]
            self._note("cancel_batch", f"batch:{id}", changed, actor, now)
        self._bell.ring()
        return Acted.DONE

    def _cancel_members(self, batch: KeptBatch, actor: Actor, now: int) -> int:
        """Cancel the jobs that are its own; one that holds a key for it is not."""
        batch.closed = batch.cancelled = True
        batch.reason = actor.reason
        live = [self._rows[id] for id, state in batch.members.items() if state is State.READY and id in self._rows]
        own = [row for row in live if row.new.batch == batch.id]
        for row in own:
            self._cancel(row, actor, now)
        self._judge(batch, now)
        return len(own)

    async def batch(self, id: str) -> Batch | None:
        with self._lock:
            kept = self._batches.all.get(id)
            return None if kept is None else self._view(kept)

    async def batches(self, state: BatchState | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE) -> BatchPage:
        with self._lock:
            found = self._batches.page(state, after)
            return BatchPage([self._view(kept) for kept in found[:limit]], found[limit - 1].id if len(found) > limit else None)

    async def failovers(self) -> int:
        return 0

    async def live_batches(self) -> dict[BatchState, int]:
        with self._lock:
            found = Counter(kept.state for kept in self._batches.all.values())
        return {state: found[state] for state in (BatchState.OPEN, BatchState.RUNNING)}

    def _view(self, kept: KeptBatch) -> Batch:
        return kept.view(sum(row.new.id in kept.members for row in self._leases.all()))

    def _prune_batches(self, retention: Retention, now: int) -> None:
        """Forget batches that ended long ago; what waits for one still is cancelled."""
        for kept in list(self._batches.all.values()):
            state = kept.standing.state
            if state.finished and kept.ended_at is not None and kept.ended_at <= now - to_us(getattr(retention, state)):
                self._batches.remove(kept)
                self._tell(kept.id, UpstreamStanding(State.CANCELLED, kept.died, batch=True), now, REMOVED)
