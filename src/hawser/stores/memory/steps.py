"""The steps of jobs, in the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.clock import to_us
from hawser.store import NewStep, RecordedStep
from hawser.stores.memory.operations import Operations
from hawser.stores.steps import step_of


class Steps(Operations):
    """What runs have achieved, by job, under the lock of the store."""

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
            kept[step.name] = step.name, step.kind, step.value, now, step.lease, until
            row.attempt = 1
            self._depth.tally(now, row.queue, row.task, "steps")
        return step_of(kept[step.name], now)

    async def steps(self, id: str) -> list[RecordedStep]:
        with self._lock:
            now = self._clock.now()
            return [step_of(step, now) for step in self._made_steps.get(id, {}).values()]
