"""The scheduler's side of the memory store: what is due, fired, put, deleted and declared."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.clock import Clock
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import Actor
from hawser.store.schedules import Advanced, DueSchedules
from hawser.stores.memory.runs import Runs
from hawser.stores.memory.schedules import ScheduleTable


class Scheduling(Runs):
    """The jobs, and the schedules that make some of them."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._schedules = ScheduleTable()

    async def schedules(self, names: Sequence[str] | None = None, after: str = "", limit: int | None = None) -> list[Schedule]:
        with self._lock:
            return self._schedules.named(names, after)[:limit]

    async def due_schedules(self, limit: int) -> DueSchedules:
        with self._lock:
            return self._schedules.due(limit, self._clock.now())

    async def next_schedules(self, limit: int) -> list[Schedule]:
        with self._lock:
            return self._schedules.next(limit)

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        with self._lock:
            now = self._clock.now()
            answers = [self._advance(advance, now) for advance in advances]
        if any(advance.jobs for advance in advances):
            self._bell.ring()
        return answers

    def _advance(self, advance: Advance, now: int) -> Advanced:
        standing = self._schedules.get(advance.schedule.name)
        revision = standing.revision if standing else None
        if revision == advance.schedule.revision:
            return Advanced.REPEATED
        if revision != advance.expect:
            return Advanced.STALE
        last = self._rows.get(advance.unless_live) if advance.unless_live else None
        if advance.otherwise is not None and last is not None and not last.state.finished:
            self._schedules.put(advance.otherwise)
            return Advanced.SKIPPED
        self._schedules.put(advance.schedule)
        new = [job for job in advance.jobs if job.tick is None or (job.schedule, job.tick) not in self._ticks]
        for job in self._sort_out(new, now)[1]:
            self._add(job, now, job.parent_id)
        return Advanced.DONE

    async def put_schedule(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        with self._lock:
            [answer] = await self.fire((advance,))
            if answer in (Advanced.DONE, Advanced.SKIPPED):
                made = len(advance.jobs) if answer is Advanced.DONE else 0
                self._note(action, f"schedule:{advance.schedule.name}", made, actor, self._clock.now())
            return answer

    async def delete_schedule(self, name: str, actor: Actor) -> bool:
        with self._lock:
            gone = self._schedules.remove(name)
            if gone:
                self._note("delete_schedule", f"schedule:{name}", 0, actor, self._clock.now())
            return gone

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        with self._lock:
            return self._schedules.declare(declaration, self._clock.now())
