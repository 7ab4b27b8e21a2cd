"""What operators do with the jobs, queues and tasks of the memory store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, assert_never

import msgspec

from hawser.clock import at
from hawser.job import NewJob, State
from hawser.limit import Limit
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import (
    Acted,
    Actor,
    Pause,
    Target,
    Weight,
)
from hawser.stores.memory.queries import Queries
from hawser.stores.memory.row import Row
from hawser.stores.order import spread_delays
from hawser.stores.record import noted


class Operations(Queries):
    """What an operator does with jobs and queues."""

    async def group_dead(self, limit: int) -> int:  # noqa: ARG002  # all have their groups
        return 0

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return self._act("cancel", ids, actor, self._cancel)

    def _cancel(self, row: Row, actor: Actor, now: int) -> Acted:
        match row.state:
            case State.RUNNING:
                row.cancel_asked = True
                self._asked.add(row.new.id)
                row.reason = actor.reason
                return Acted.ASKED
            case State.READY:
                self._ready.remove(row)
                self._end(row, State.CANCELLED, actor.reason, now)
                return Acted.DONE
            case State.DONE | State.DEAD | State.CANCELLED:
                return Acted.WRONG_STATE
            case _:
                assert_never(row.state)

    async def requeue(self, ids: Sequence[str], actor: Actor, spread: float = 0.0, delay: float = 0.0) -> list[Acted]:
        later = dict(zip(ids, spread_delays(len(ids), spread, delay), strict=True))
        answers = self._act("requeue", ids, actor, lambda row, actor, now: self._requeue(row, actor, now, later[row.new.id]))
        self._bell.ring()
        return answers

    def _requeue(self, row: Row, actor: Actor, now: int, later: int = 0) -> Acted:  # noqa: ARG002  # one shape for all actions
        if row.state not in (State.DEAD, State.CANCELLED):
            return Acted.WRONG_STATE
        if row.new.key is not None:
            holder = self._keys.holder(row.new.key_scope, now)
            if holder is None:
                self._keys.take_again(row.new)
            elif holder != row.new.id:
                return Acted.KEY_TAKEN
        self._depth.move(row, -1)
        row.state = State.READY
        row.attempt = 0
        row.cancel_asked = False
        row.reason = None
        row.result = None
        row.expires_at = None
        self._make_ready(row, now + later, now)
        self._count(row, now)
        return Acted.DONE

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return self._act("discard", ids, actor, self._discard)

    def _discard(self, row: Row, actor: Actor, now: int) -> Acted:
        if row.state is not State.DEAD:
            return Acted.WRONG_STATE
        self._end(row, State.CANCELLED, actor.reason, now)
        return Acted.DONE

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        def swap(row: Row, actor: Actor, now: int) -> Acted:
            if row.state is not State.DEAD:
                return Acted.WRONG_STATE
            answers, added = self._sort_out((job,), now)
            if answers[0].id != job.id:
                return Acted.KEY_TAKEN
            self._dependencies.wait_instead(row.new.id, job.id)
            batch = self._batches.all.get(row.new.batch) if row.new.batch is not None else None
            counting = self._batches.stand_in(row.new.id, job.id)
            if batch is not None:
                batch.expected += 1
                batch.drop(row.new.id)
            of, row.new = row.new.batch, msgspec.structs.replace(row.new, batch=None)
            self._discard(row, actor, now)
            for new in added:
                self._add(msgspec.structs.replace(new, batch=None), now, row.new.id)
            if batch is not None:
                self._rows[job.id].new = msgspec.structs.replace(self._rows[job.id].new, batch=of)
                batch.expected -= 1
                batch.add(job.id)
                counting.append(batch)
            for kept in counting:
                self._judge(kept, now)
            return Acted.DONE

        answers = self._act("replace", (id,), actor, swap)
        self._bell.ring()
        return answers[0]

    def _end(self, row: Row, state: State, reason: str | None, now: int) -> None:
        """Finish a row that is not running."""
        self._depth.move(row, -1)
        row.state, row.held = state, None
        row.reason = reason
        self._depth.tally(now, row.queue, row.task, state)
        self._finish(row, now)

    def _act(self, action: str, ids: Sequence[str], actor: Actor, act: Any) -> list[Acted]:
        with self._lock:
            now = self._clock.now()
            answers = []
            for id in ids:
                row = self._rows.get(id)
                answers.append(act(row, actor, now) if row else Acted.NOT_FOUND)
            said = noted(ids, answers)
            if said.changed:
                self._note(action, said.target, said.changed, actor, now, said.ids)
            return answers

    async def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        with self._lock:
            now = self._clock.now()
            self._pauses[target] = Pause(target=target, since=at(now), until=until, reason=actor.reason, by=actor.by)
            self._note("pause", f"{target.kind}:{target.name}", 0, actor, now)

    async def resume(self, target: Target, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            stood = self._stands(target, now)
            self._pauses.pop(target, None)
            if stood:
                self._note("resume", f"{target.kind}:{target.name}", 0, actor, now)
        self._bell.ring()
        return stood

    async def set_limit(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            changed = self._limits.choose(target, limit, now, actor.by)
            if changed:
                self._ready.reopen(target.name)
                self._note("clear_limit" if limit is None else "set_limit", f"{target.kind}:{target.name}", 0, actor, now)
        self._bell.ring()
        return changed

    async def declare_limits(self, limits: Mapping[str, Limit | None]) -> None:
        with self._lock:
            for task, limit in limits.items():
                if self._limits.declare(task, limit, self._clock.now()):
                    self._ready.reopen(task)
        self._bell.ring()

    async def set_weight(self, weight: Weight, actor: Actor) -> None:
        with self._lock:
            if weight.weight == 1:
                self._weights.pop((weight.queue, weight.group), None)
            else:
                self._weights[weight.queue, weight.group] = weight.weight
            self._note("set_weight", f"queue:{weight.queue}", 0, actor, self._clock.now())

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        with self._lock:
            if policy == NO_POLICY:
                self._policies.pop(queue, None)
            else:
                self._policies[queue] = policy
            self._note("set_policy", f"queue:{queue}", 0, actor, self._clock.now())

    async def note(self, action: str, target: str, actor: Actor) -> None:
        with self._lock:
            self._note(action, target, 0, actor, self._clock.now())
