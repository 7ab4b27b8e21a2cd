"""The breakers of the memory store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hawser.breaker import Breaker
from hawser.store import Actor
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerStatus, BreakerVerdict
from hawser.stores.breakers import NO_BREAKER, KeptBreaker
from hawser.stores.memory.edits import Edits


class Breakers(Edits):
    """What code, people and judges do to breakers."""

    async def declare_breakers(self, breakers: Mapping[str, Breaker | None]) -> None:
        with self._lock:
            for task, rule in breakers.items():
                kept = self._breakers.get(task, NO_BREAKER)
                if kept.rule != rule:
                    self._put_breaker(task, kept.declared(rule, self._clock.now()))
        self._bell.ring()

    async def breakers(self) -> list[BreakerStatus]:
        with self._lock:
            return [kept.status(task) for task, kept in sorted(self._breakers.items())]

    async def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        with self._lock:
            now = self._clock.now()
            judged = [self._breakers.get(verdict.task, NO_BREAKER).judged(verdict, now) for verdict in verdicts]
            for verdict, kept in zip(verdicts, judged, strict=True):
                if kept is not None:
                    self._put_breaker(verdict.task, kept)
        self._bell.ring()
        return [kept is not None for kept in judged]

    async def open_breaker(self, task: str, actor: Actor) -> bool:
        with self._lock:
            now, kept = self._clock.now(), self._breakers.get(task, NO_BREAKER)
            if kept.open and kept.by_hand:
                return False
            self._put_breaker(task, kept.opened(now, actor.by, by_hand=True))
            self._note("open_breaker", f"task:{task}", 0, actor, now)
            return True

    async def close_breaker(self, task: str, actor: Actor, counted: AttemptCount = NOTHING_COUNTED) -> bool:
        with self._lock:
            now, kept = self._clock.now(), self._breakers.get(task, NO_BREAKER)
            if not kept.open:
                return False
            self._put_breaker(task, kept.closed(now, actor.by, counted))
            self._note("close_breaker", f"task:{task}", 0, actor, now)
        self._bell.ring()
        return True

    def _put_breaker(self, task: str, kept: KeptBreaker) -> None:
        if kept.is_needed:
            self._breakers[task] = kept
        else:
            self._breakers.pop(task, None)
