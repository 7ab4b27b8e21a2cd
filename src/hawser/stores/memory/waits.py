"""Jobs that wait in the middle of their handlers, in the memory store."""

from __future__ import annotations

from itertools import islice

from hawser.clock import at, to_us
from hawser.job import State
from hawser.outcome import Held
from hawser.store import DUE_COUNTED, OPEN_KINDS, Emitted, Event
from hawser.stores.dependencies import FAR
from hawser.stores.memory.jobs import Jobs
from hawser.stores.memory.row import Row
from hawser.stores.order import Lane
from hawser.stores.waits import is_over, waited_for


class HeldJobs(Jobs):
    """The jobs, and what their runs wait for."""

    async def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        with self._lock:
            now = self._clock.now()
            known = self._events.kept.get(name)
            if known is not None:
                return Emitted(created=False, at=at(known[0]), same=known[1] == body)
            self._events.kept[name] = now, body, now + to_us(keep)
            self._depth.tally(now, "", "", "emitted")
            for id, step in self._events.waiters(name):
                self._wake(id, step, now)
        self._bell.ring()
        return Emitted(created=True, at=at(now), same=True)

    async def event(self, name: str) -> Event | None:
        with self._lock:
            found = self._events.kept.get(name)
            return None if found is None else Event(name=name, at=at(found[0]), body=found[1], until=at(found[2]))

    async def awaiting(self) -> int:
        with self._lock:
            lasting = (1 for id, name in self._events.all_waiters() if self._made_steps[id][name][1] == "wait")
            return sum(islice(lasting, DUE_COUNTED))

    def _hold_run(self, row: Row, hold: Held, now: int) -> None:
        """Hold a job that has just left running, unless what it waits for has come."""
        self._note_wait(row, hold, now)
        self._ready.remove(row)
        self._depth.move(row, -1)
        doomed = None
        if hold.event is None:
            doomed = self._hold(row, hold.jobs, 0, "done")
        else:
            row.held, row.run_at, row.lane = 0, FAR, Lane.TIMED
        self._ready.add(row, now)
        self._depth.move(row, +1)
        if doomed is not None:
            self._cancel_waiting(row, doomed, now)
        until = self._made_steps[row.new.id][hold.name][5]
        if is_over(self._events.came(hold.event), until, now):
            self._wake(row.new.id, hold.name, now)

    def _note_wait(self, row: Row, hold: Held, now: int) -> None:
        kept = self._made_steps.setdefault(row.new.id, {})
        known = kept.get(hold.name)
        if known is None:
            until = None if hold.timeout is None else now + to_us(hold.timeout)
            kept[hold.name] = hold.name, "wait", waited_for(hold), now, row.lease, until, hold.event
        elif known[1] in OPEN_KINDS:
            kept[hold.name] = hold.name, "wait", waited_for(hold), *known[3:6], hold.event
        else:
            return
        self._events.waits(row.new.id, kept[hold.name])

    def _wake(self, id: str, name: str, now: int) -> None:
        """A wait is over: its job may go on, if it is held for an event."""
        step = self._made_steps.get(id, {}).get(name)
        if step is None or step[1] != "wait":
            return
        self._made_steps[id][name] = step[0], "woken", *step[2:]
        row = self._rows[id]
        if row.state is State.READY and row.held is not None and id not in self._dependencies.of:
            self._release(row, now)
            self._depth.tally(now, row.queue, row.task, "woken")

    def _wake_overdue(self, now: int) -> bool:
        overdue = list(self._events.overdue(now))
        for id, name in overdue:
            self._wake(id, name, now)
        return bool(overdue)
