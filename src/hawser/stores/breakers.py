"""Breakers as the stores keep them: one value per task, and the rules by which it changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from hawser.breaker import Breaker
from hawser.clock import at, to_us
from hawser.store import Actor, Target
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerStatus, BreakerVerdict
from hawser.store.jobs import LeaseRef
from hawser.stores.limits import Room, Rooms


class KeptBreaker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The breaker of a task. Times are microseconds; 0 where there is none."""

    rule: Breaker | None = None
    open: bool = False
    since: int = 0
    by: str = "code"
    by_hand: bool = False
    revision: int = 0
    failed: int = 0
    attempts: int = 0
    probe_at: int = 0
    probe_id: str = ""
    probe_lease: int = 0
    counted: AttemptCount = NOTHING_COUNTED

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to keep."""
        return self.rule is not None or self.open

    def declared(self, rule: Breaker | None, now: int) -> KeptBreaker:
        """After code has spoken. A rule that is gone closes what it opened."""
        if rule is None and self.open and not self.by_hand:
            return msgspec.structs.replace(self.closed(now, "code"), rule=None)
        return msgspec.structs.replace(self, rule=rule, since=self.since or now, revision=self.revision + 1)

    def opened(self, now: int, by: str, *, by_hand: bool, failed: int = 0, attempts: int = 0) -> KeptBreaker:
        assert by_hand or self.rule is not None
        probe_at = 0 if by_hand or self.rule is None else now + to_us(self.rule.probe_every)
        return KeptBreaker(
            rule=self.rule,
            open=True,
            since=now,
            by=by,
            by_hand=by_hand,
            revision=self.revision + 1,
            failed=failed,
            attempts=attempts,
            probe_at=probe_at,
        )

    def closed(self, now: int, by: str, counted: AttemptCount = NOTHING_COUNTED) -> KeptBreaker:
        return KeptBreaker(rule=self.rule, since=now, by=by, revision=self.revision + 1, counted=counted)

    def judged(self, verdict: BreakerVerdict, now: int) -> KeptBreaker | None:
        """What becomes of it; None when it is not as it was, or a person's."""
        if verdict.revision != self.revision or verdict.open == self.open or self.by_hand or self.rule is None:
            return None
        if verdict.open:
            return self.opened(now, "breaker", by_hand=False, failed=verdict.failed, attempts=verdict.attempts)
        return self.closed(now, "breaker", verdict.counted)

    def places(self, now: int) -> int | None:
        """How many jobs of the task a claim may take: one when a probe is due, else none; None when it is closed."""
        if not self.open:
            return None
        return 1 if self.probe_at and now >= self.probe_at else 0

    def probed(self, id: str, lease: int, now: int) -> KeptBreaker:
        """A claim has taken the probe."""
        assert self.rule is not None
        next_ = now + to_us(self.rule.probe_every)
        return msgspec.structs.replace(self, probe_at=next_, probe_id=id, probe_lease=lease)

    def without_probe(self) -> KeptBreaker:
        """The job of the probe was removed, and was not done."""
        return msgspec.structs.replace(self, probe_id="", probe_lease=0)

    def status(self, task: str) -> BreakerStatus:
        return BreakerStatus(
            task=task,
            rule=self.rule,
            open=self.open,
            since=at(self.since),
            by=self.by,
            by_hand=self.by_hand,
            revision=self.revision,
            failed=self.failed,
            attempts=self.attempts,
            probe_at=at(self.probe_at) if self.probe_at else None,
            probe=LeaseRef(self.probe_id, self.probe_lease) if self.probe_id else None,
            counted=self.counted,
        )


NO_BREAKER: Final = KeptBreaker()

Change = Callable[[KeptBreaker, int], KeptBreaker | None]
"""What becomes of a breaker at a time; None is no change."""


class BreakerChanges(ABC):
    """What code, people and judges do to breakers, for stores that change one breaker at a time."""

    @abstractmethod
    async def statuses(self) -> list[BreakerStatus]:
        """All breakers, by task."""

    @abstractmethod
    async def _change(self, task: str, change: Change, noted: tuple[str, Actor] | None = None) -> bool:
        """Write what `change` makes of the breaker, with a record of who did what, if it is a person; False when it is no change.
        Nothing else may change it between reading and writing."""

    async def declare(self, breakers: Mapping[str, Breaker | None]) -> None:
        known = {status.task: status.rule for status in await self.statuses()}
        for task, rule in sorted(breakers.items()):
            if known.get(task) != rule:
                await self._change(task, partial(_declared, rule))

    async def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        return [await self._change(verdict.task, partial(_judged, verdict)) for verdict in verdicts]

    async def open_by_hand(self, task: str, actor: Actor) -> bool:
        def opened(kept: KeptBreaker, now: int) -> KeptBreaker | None:
            return None if kept.open and kept.by_hand else kept.opened(now, actor.by, by_hand=True)

        return await self._change(task, opened, ("open_breaker", actor))

    async def close_by_hand(self, task: str, actor: Actor, counted: AttemptCount) -> bool:
        def closed(kept: KeptBreaker, now: int) -> KeptBreaker | None:
            return kept.closed(now, actor.by, counted) if kept.open else None

        return await self._change(task, closed, ("close_breaker", actor))


def _declared(rule: Breaker | None, kept: KeptBreaker, now: int) -> KeptBreaker | None:
    return kept.declared(rule, now) if kept.rule != rule else None


def _judged(verdict: BreakerVerdict, kept: KeptBreaker, now: int) -> KeptBreaker | None:
    return kept.judged(verdict, now)


def with_breakers(rooms: Rooms, probes: Mapping[str, int], now: int) -> Rooms:
    """What limits leave, and what open breakers do: a probe when its time has come, else nothing. `probes` says when the next one
    may start, by task; 0 when a person opened the breaker."""
    if not probes:
        return rooms
    found = dict(rooms)
    for task, probe_at in probes.items():
        target = Target("task", task)
        due = 0 < probe_at <= now
        before = found.get(target, Room(1))
        opens_at = before.opens_at if due else probe_at or None
        found[target] = Room(min(1, before.places) if due else 0, opens_at)
    return found


def encoded(kept: KeptBreaker) -> bytes:
    return msgspec.json.encode(kept)


def decoded(text: str | bytes) -> KeptBreaker:
    return msgspec.json.decode(text, type=KeptBreaker)
