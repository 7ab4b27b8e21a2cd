"""The oracle's breakers: the plainest thing that keeps the promises about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hawser.breaker import Breaker
from hawser.clock import at, to_us
from hawser.store import LeaseRef
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerStatus, BreakerVerdict


@dataclass
class OpenBreaker:
    """What is said of a breaker while it is open; times in microseconds."""

    by_hand: bool
    failed: int = 0
    attempts: int = 0
    probe_at: int | None = None
    probe: LeaseRef | None = None


@dataclass
class TaskBreaker:
    """The breaker of a task."""

    rule: Breaker | None = None
    open: OpenBreaker | None = None
    since: int = 0
    by: str = "code"
    revision: int = 0
    counted: AttemptCount = NOTHING_COUNTED


class BreakerModel:
    """All breakers, by task."""

    def __init__(self) -> None:
        self.all: dict[str, TaskBreaker] = {}

    def declare(self, rules: Mapping[str, Breaker | None], now: int) -> None:
        for task, rule in rules.items():
            one = self.all.get(task, TaskBreaker())
            if one.rule == rule:
                continue
            if rule is None and one.open is not None and not one.open.by_hand:
                del self.all[task]
                continue
            self._put(task, replace(one, rule=rule, since=one.since or now, revision=one.revision + 1))

    def judge(self, verdicts: Sequence[BreakerVerdict], now: int) -> list[bool]:
        return [self._judge(verdict, now) for verdict in verdicts]

    def _judge(self, verdict: BreakerVerdict, now: int) -> bool:
        one = self.all.get(verdict.task)
        if one is None or one.rule is None or verdict.revision != one.revision or verdict.open == (one.open is not None):
            return False
        if one.open is not None and one.open.by_hand:
            return False
        if verdict.open:
            probe_at = now + to_us(one.rule.probe_every)
            self._open(verdict.task, OpenBreaker(False, verdict.failed, verdict.attempts, probe_at), "breaker", now)
        else:
            self._close(verdict.task, "breaker", verdict.counted, now)
        return True

    def open_by_hand(self, task: str, by: str, now: int) -> bool:
        one = self.all.get(task)
        if one is not None and one.open is not None and one.open.by_hand:
            return False
        self._open(task, OpenBreaker(by_hand=True), by, now)
        return True

    def close_by_hand(self, task: str, by: str, counted: AttemptCount, now: int) -> bool:
        one = self.all.get(task)
        if one is None or one.open is None:
            return False
        self._close(task, by, counted, now)
        return True

    def _open(self, task: str, how: OpenBreaker, by: str, now: int) -> None:
        one = self.all.get(task, TaskBreaker())
        self._put(task, TaskBreaker(one.rule, how, now, by, one.revision + 1))

    def _close(self, task: str, by: str, counted: AttemptCount, now: int) -> None:
        one = self.all[task]
        self._put(task, TaskBreaker(one.rule, None, now, by, one.revision + 1, counted))

    def _put(self, task: str, one: TaskBreaker) -> None:
        if one.rule is None and one.open is None:
            self.all.pop(task, None)
        else:
            self.all[task] = one

    def places(self, now: int) -> dict[str, int]:
        """How many jobs of tasks with an open breaker a claim may take."""
        due = {task: one.open.probe_at for task, one in self.all.items() if one.open is not None}
        return {task: int(probe_at is not None and probe_at <= now) for task, probe_at in due.items()}

    def started(self, runs: Iterable[tuple[str, str, int]], now: int) -> None:
        """Jobs were given out: task, id and lease."""
        for task, id, lease in runs:
            one = self.all.get(task)
            if one is not None and one.open is not None and one.rule is not None:
                one.open.probe, one.open.probe_at = LeaseRef(id, lease), now + to_us(one.rule.probe_every)

    def statuses(self) -> list[BreakerStatus]:
        return [_status(task, one) for task, one in sorted(self.all.items())]


def _status(task: str, one: TaskBreaker) -> BreakerStatus:
    how = one.open or OpenBreaker(by_hand=False)
    return BreakerStatus(
        task=task,
        rule=one.rule,
        open=one.open is not None,
        since=at(one.since),
        by=one.by,
        by_hand=how.by_hand,
        revision=one.revision,
        failed=how.failed,
        attempts=how.attempts,
        probe_at=None if how.probe_at is None else at(how.probe_at),
        probe=how.probe,
        counted=one.counted,
    )
