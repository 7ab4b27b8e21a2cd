"""The limits of the memory store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from hawser.limit import Limit
from hawser.store import LimitUse, Target
from hawser.stores.limits import Bound, KeptLimit, Rooms, Window, bound_of
from hawser.stores.memory.row import Row


class Limits:
    """All limits, and those of them that claims must obey."""

    def __init__(self) -> None:
        self._kept: dict[Target, KeptLimit] = {}
        self._bounds: dict[Target, Bound] = {}
        self._windows: dict[Target, Window] = {}

    def choose(self, target: Target, limit: Limit | None, now: int, by: str) -> bool:
        """What an operator says; False when there is nothing to take back."""
        kept = self._kept.get(target, KeptLimit())
        if limit is None and kept.chosen is None:
            return False
        self._put(target, kept.choosing(target, limit, now, by))
        return True

    def declare(self, task: str, limit: Limit | None, now: int) -> None:
        """What code says."""
        target = Target("task", task)
        kept = self._kept.get(target, KeptLimit())
        if kept.declared != limit:
            self._put(target, kept.declaring(limit, now))

    def _put(self, target: Target, kept: KeptLimit) -> None:
        before, bound = self._bounds.pop(target, None), bound_of(kept.in_force)
        self._kept.pop(target, None)
        if kept.in_force is not None:
            self._kept[target] = kept
        if bound is not None:
            self._bounds[target] = bound
        if bound is None or before is None or bound.width != before.width:
            self._windows.pop(target, None)

    def __bool__(self) -> bool:
        """Whether claims must obey any."""
        return bool(self._bounds)

    def max_depth(self, queue: str) -> int | None:
        kept = self._kept.get(Target("queue", queue)) if self._kept else None
        return None if kept is None or kept.in_force is None else kept.in_force.max_depth

    def queues(self) -> list[str]:
        """The queues that have a limit."""
        return [target.name for target in self._kept if target.kind == "queue"]

    def rooms(self, now: int, running: Callable[[Target], int]) -> Rooms:
        """What each limit that binds claims leaves."""
        return {target: bound.room(running(target), self._window(target, now)) for target, bound in self._bounds.items()}

    def start(self, rows: Iterable[Row], now: int) -> None:
        """These rows start."""
        counts: Counter[Target] = Counter()
        for row in rows:
            counts[Target("queue", row.queue)] += 1
            counts[Target("task", row.task)] += 1
        for target, starts in counts.items():
            bound = self._bounds.get(target)
            if bound is not None and bound.starts is not None:
                self._windows[target] = self._window(target, now).with_starts(starts)

    def _window(self, target: Target, now: int) -> Window:
        return self._bounds[target].window(self._windows.get(target, Window()), now)

    def uses(self, now: int, running: Callable[[Target], int]) -> list[LimitUse]:
        """All of them, by kind and name."""
        windows = self._windows
        return [
            kept.use(target, running(target), windows.get(target, Window()), now)
            for target, kept in sorted(self._kept.items(), key=lambda item: (item[0].kind, item[0].name))
        ]
