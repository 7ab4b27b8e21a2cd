"""The steps of jobs, in the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.clock import to_us
from hawser.store import OPEN_KINDS, Acted, Actor, Arrival, NewStep, RecordedStep
from hawser.stores.memory.operations import Operations
from hawser.stores.memory.row import Row
from hawser.stores.steps import step_of
from hawser.stores.waits import COUNTED_AS, came_to


class Steps(Operations):
    """What runs have achieved, and the events that they wait for."""

    async def record_steps(self, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
        with self._lock:
            now = self._clock.now()
            return [self._record_step(step, now) for step in steps]

    def _record_step(self, step: NewStep, now: int) -> RecordedStep | None:
        row = self._rows.get(step.id)
        if row is None or not self._holds(row, step.lease):
            return None
        kept = self._made_steps.setdefault(step.id, {})
        if step.name not in kept:
            until = None if step.lasts is None else now + to_us(step.lasts)
            kept[step.name] = step.name, step.kind, step.value, now, step.lease, until, None
            row.attempt = 1
            self._depth.tally(now, row.queue, row.task, "steps")
        return step_of(kept[step.name], now)

    async def arrive(self, arrival: Arrival) -> RecordedStep | None:
        with self._lock:
            now, row = self._clock.now(), self._rows.get(arrival.id)
            if row is None or not self._holds(row, arrival.lease):
                return None
            known = self._made_steps.get(arrival.id, {}).get(arrival.name)
            if known is not None and known[1] not in OPEN_KINDS:
                return step_of(known, now)
            until, event = None if known is None else known[5], arrival.event
            since = now if known is None else known[3]
            if arrival.value is not None:
                came: tuple[str, bytes, int] | None = ("gather", arrival.value, now)
            else:
                came = came_to(self._events.came(event), until, now)
            if came is None:
                return step_of(known or (arrival.name, "wait", b"null", now, arrival.lease, None, event), now)
            if known is not None:
                self._events.waits_no_more(arrival.id, known)
            kind, value, end = came
            made = arrival.name, kind, value, since, arrival.lease, max(since, end), event
            self._made_steps.setdefault(arrival.id, {})[arrival.name] = made
            row.attempt = 1
            self._depth.tally(now, row.queue, row.task, "steps")
            if (counted := COUNTED_AS.get(kind)) is not None:
                self._depth.tally(now, row.queue, row.task, counted)
            return step_of(made, now)

    async def rewind(self, id: str, to: str | None, actor: Actor) -> Acted:
        def back(row: Row, actor: Actor, now: int) -> Acted:
            kept = self._made_steps.get(id, {})
            if to is not None and to not in kept:
                return Acted.NOT_FOUND
            acted = self._requeue(row, actor, now)
            if acted is Acted.DONE:
                names = list(kept)
                for name in names[names.index(to) + 1 if to is not None else 0 :]:
                    self._events.waits_no_more(id, kept.pop(name))
            return acted

        [answer] = self._act("rewind", [id], actor, back)
        self._bell.ring()
        return answer

    async def steps(self, id: str) -> list[RecordedStep]:
        with self._lock:
            now = self._clock.now()
            return [step_of(step, now) for step in self._made_steps.get(id, {}).values()]
