"""The memory store. Every method is one step under one lock and never suspends, so a plain caller may drive it inline."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from hawser.clock import Clock, to_us
from hawser.job import State
from hawser.store import (
    DONE_LATE,
    Acted,
    Actor,
    BulkOperation,
    BulkPlan,
    BulkStep,
    Declined,
    Durability,
    LeaseRef,
    Retention,
    Unaccepted,
)
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.store.rollup import Measured
from hawser.stores.declined import Kept, merged
from hawser.stores.memory.api_keys import ApiKeys
from hawser.stores.memory.batch_calls import Batches
from hawser.stores.memory.bulk import Bulks
from hawser.stores.memory.row import Row
from hawser.stores.order import spread_delays
from hawser.stores.record import changed
from hawser.stores.tally import event_of


class MemoryStore(Batches):
    """`Jobs`, `Runs`, `Scheduling`, `Queries`, `Operations`, `Steps`, `Outputs`, `Edits`, `Breakers` and `Batches` share its
    lock and rows; each is a layer on the last."""

    durability: Durability = "relaxed"
    retention = Retention()
    done_most: int | None = None
    inline = True
    """Its coroutines never suspend (`wait` apart): a sync caller may run them without an event loop."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._api_keys = ApiKeys()
        self._bulks = Bulks()
        self._declined: dict[str, Kept] = {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def _is_in(self, id: str) -> bool:
        return id in self._rows and not self._rows[id].state.finished

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        with self._lock:
            now = self._clock.now()
            self._keys.sweep(now, limit)
            self._depth.forget(now)
            self._ready.forget_empty()
            self._limits.forget_groups(now, self._is_in)
            for target in [target for target in self._pauses if not self._stands(target, now)]:
                del self._pauses[target]
            removed = 0
            for (task, state), finished in list(self._finished.items()):
                kept_for = to_us(getattr(by_task.get(task, retention), state))
                removed += self._prune(finished, state, kept_for, now, limit - removed)
                if not finished:
                    del self._finished[task, state]
            self._prune_batches(retention, now)
            self._requests.forget(now, limit)
            self._bulks.forget(now)
            self._events.forget(now)
            self._declined = {id: kept for id, kept in self._declined.items() if self._lives(id)}
            return removed

    def _prune(self, finished: deque[tuple[int, Row]], state: State, kept_for: int, now: int, limit: int) -> int:
        removed = 0
        while removed < limit and finished and finished[0][0] <= now - kept_for:
            finished_at, row = finished.popleft()
            if row.state is state and row.finished_at == finished_at and self._rows.get(row.new.id) is row:
                self._remove(row, now)
                removed += 1
        return removed

    async def measure(self, measured: Sequence[Measured]) -> None:
        with self._lock:
            now = self._clock.now()
            for each in measured:
                self._depth.tally(now, each.queue, each.task, event_of(each), each.count)

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        with self._lock:
            now = self._clock.now()
            if self._api_keys.put(key, lasts, now):
                self._note("create_key", f"key:{key.id}", 0, actor, now)

    async def api_keys(self) -> list[KeyRecord]:
        with self._lock:
            return self._api_keys.records(self._clock.now())

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            revoked = self._api_keys.revoke(id, now)
            if revoked:
                self._note("revoke_key", f"key:{id}", 0, actor, now)
            return revoked

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        with self._lock:
            self._api_keys.use(ids, self._clock.now())

    async def end_returned(self, lost: LeaseRef) -> bool:
        with self._lock:
            row = self._rows.get(lost.id)
            if row is None or row.state is not State.READY or row.lease != lost.lease + 1 or row.settled == row.lease:
                return False
            self._cancel(row, Actor(reason=DONE_LATE), self._clock.now())
            return True

    async def decline(self, declined: Sequence[Declined]) -> list[Unaccepted | None]:
        with self._lock:
            now = self._clock.now()
            live = [note for note in declined if self._lives(note.id)]
            for note in live:
                self._declined[note.id] = merged(self._declined.get(note.id), note, now)
            return [self._declined[note.id].answer(now) if note in live else None for note in declined]

    def _lives(self, id: str) -> bool:
        row = self._rows.get(id)
        return row is not None and not row.state.finished

    async def start_bulk(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        with self._lock:
            return self._bulks.start(id, plan, owner, self._clock.now())

    async def bulk(self, id: str) -> BulkOperation | None:
        with self._lock:
            return self._bulks.get(id, self._clock.now())

    async def bulks(self) -> list[BulkOperation]:
        with self._lock:
            return self._bulks.all(self._clock.now())

    async def step_bulk(self, step: BulkStep) -> BulkOperation | None:
        later = dict(zip(step.ids, spread_delays(len(step.ids), step.spread, step.delay), strict=True))

        def requeue(row: Row, actor: Actor, now: int) -> Acted:
            return self._requeue(row, actor, now, later[row.new.id])

        do = {"cancel": self._cancel, "requeue": requeue, "discard": self._discard}
        with self._lock:
            kept = self._bulks.current(step)
            if kept is None:
                return None
            act = do.get(kept.plan.action) or self._changing(kept.plan.change)
            answers = self._act(kept.plan.action, step.ids, kept.plan.actor(step.id), act)
            written = self._bulks.write(step, changed(answers), self._clock.now())
        self._bell.ring()
        return written

    async def take_bulks(self, owner: str, limit: int) -> list[BulkOperation]:
        with self._lock:
            return self._bulks.take(owner, limit, self._clock.now())

    async def release_bulk(self, id: str, turn: int) -> None:
        with self._lock:
            self._bulks.release(id, turn, self._clock.now())

    async def stop_bulk(self, id: str, actor: Actor) -> BulkOperation | None:
        with self._lock:
            now = self._clock.now()
            if self._bulks.get(id, now) is None:
                return None
            if self._bulks.stop(id, now):
                self._note("stop_operation", f"operation:{id}", 0, actor, now)
            return self._bulks.get(id, now)
