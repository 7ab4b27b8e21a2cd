"""The changes of single jobs in the memory store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from hawser.job import State
from hawser.store import Acted, Actor, Change
from hawser.stores.memory.output import Outputs
from hawser.stores.memory.row import Row
from hawser.stores.order import changed_due, changed_place


class Edits(Outputs):
    """What a person changes of single jobs."""

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        answers = self._act("change", ids, actor, self._changing(change))
        self._bell.ring()
        return answers

    def _changing(self, change: Change) -> Callable[[Row, Actor, int], Acted]:
        def move(row: Row, actor: Actor, now: int) -> Acted:  # noqa: ARG001  # one shape for all actions
            if row.state is not State.READY or row.held is not None:
                return Acted.WRONG_STATE
            new = replace(
                row.new,
                queue=row.queue if change.queue is None else change.queue,
                priority=row.priority if change.priority is None else change.priority,
            )
            if new.key is not None and not self._keys.move(row.new, new.key_scope, now):
                return Acted.KEY_TAKEN
            self._ready.remove(row)
            self._depth.move(row, -1)
            row.new, row.queue, row.priority = new, new.queue, new.priority
            row.run_at, row.lane = changed_place(row.attempt, changed_due(change, row.run_at, now), now)
            self._ready.add(row, now)
            self._depth.move(row, +1)
            self._reopen_group(row)
            return Acted.DONE

        return move

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return self._act("dead_letter", ids, actor, self._dead_letter)

    def _dead_letter(self, row: Row, actor: Actor, now: int) -> Acted:
        if row.state is not State.READY or row.held is not None:
            return Acted.WRONG_STATE
        self._ready.remove(row)
        self._end(row, State.DEAD, actor.reason, now)
        return Acted.DONE

    async def end_leases(self, worker: str, actor: Actor) -> int:
        with self._lock:
            now = self._clock.now()
            runs = [row for row in self._leases.all() if row.worker == worker and row.lease_until > now]
            for row in runs:
                row.leased_for = max(0, row.leased_for - (row.lease_until - now))  # when it was last lengthened stays known
                row.lease_until = now
                self._leases.shortened(row)
            if runs:
                self._note("reclaim_worker", f"worker:{worker}", len(runs), actor, now)
            return len(runs)
