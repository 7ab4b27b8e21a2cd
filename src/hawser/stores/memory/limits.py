"""The limits of the memory store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from hawser.limit import Limit
from hawser.store import LimitUse, Target
from hawser.stores.limits import Bound, KeptLimit, Room, Rooms, Window, bound_of
from hawser.stores.memory.row import Row


class Limits:
    """All limits, and those of them that claims must obey."""

    def __init__(self) -> None:
        self._kept: dict[Target, KeptLimit] = {}
        self._bounds: dict[Target, Bound] = {}
        self._windows: dict[Target, Window] = {}
        self.per_group: dict[str, Bound] = {}
        """By task."""
        self._group_windows: dict[tuple[str, str], Window] = {}
        """By task and group."""
        self.heads: dict[tuple[str, str], str] = {}
        """The jobs of ordered groups that started last, by task and group. One that is not live is none."""

    def choose(self, target: Target, limit: Limit | None, now: int, by: str) -> bool:
        """What an operator says; False when there is nothing to take back."""
        kept = self._kept.get(target, KeptLimit())
        if limit is None and kept.chosen is None:
            return False
        self._put(target, kept.choosing(target, limit, now, by))
        return True

    def declare(self, task: str, limit: Limit | None, now: int) -> bool:
        """What code says; whether that is something new."""
        target = Target("task", task)
        kept = self._kept.get(target, KeptLimit())
        if kept.declared == limit:
            return False
        self._put(target, kept.declaring(limit, now))
        return True

    def _put(self, target: Target, kept: KeptLimit) -> None:
        was = self._kept.pop(target, KeptLimit())
        before, bound = bound_of(was.in_force) or Bound(), bound_of(kept.in_force) or Bound()
        self._bounds.pop(target, None)
        self.per_group.pop(target.name, None)
        if kept.in_force is not None:
            self._kept[target] = kept
        if bound.per_group:
            self.per_group[target.name] = bound
        elif bound != Bound():
            self._bounds[target] = bound
        if (bound.width, bound.per_group) != (before.width, before.per_group):
            self._windows.pop(target, None)
            self._group_windows = {name: kept for name, kept in self._group_windows.items() if name[0] != target.name}
        if before.ordered and not bound.ordered:
            self.heads = {name: id for name, id in self.heads.items() if name[0] != target.name}

    def __bool__(self) -> bool:
        """Whether claims must obey any."""
        return bool(self._bounds or self.per_group)

    def max_depth(self, queue: str) -> int | None:
        kept = self._kept.get(Target("queue", queue)) if self._kept else None
        return None if kept is None or kept.in_force is None else kept.in_force.max_depth

    def of_task(self, task: str) -> Limit | None:
        """What holds for a task."""
        return self._kept.get(Target("task", task), KeptLimit()).in_force

    def window_of_group(self, task: str, group: str) -> Window:
        return self._group_windows.get((task, group), Window())

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
            if row.group is not None and (own := self.per_group.get(row.task)) is not None:
                self._start_in_group(own, (row.task, row.group), row.new.id, now)
        for target, starts in counts.items():
            bound = self._bounds.get(target)
            if bound is not None and bound.starts is not None:
                self._windows[target] = self._window(target, now).with_starts(starts)

    def _start_in_group(self, bound: Bound, name: tuple[str, str], id: str, now: int) -> None:
        if bound.starts is not None:
            self._group_windows[name] = bound.window(self._group_windows.get(name, Window()), now).with_starts(1)
        if bound.ordered:
            self.heads[name] = id

    def room_of_group(self, task: str, group: str, running: int, now: int) -> Room | None:
        """What a limit per group leaves of a group; None when the task has none."""
        bound = self.per_group.get(task)
        if bound is None:
            return None
        return bound.room(running, bound.window(self._group_windows.get((task, group), Window()), now))

    def forget_groups(self, now: int, live: Callable[[str], bool]) -> None:
        """Groups of which nothing counts any longer."""
        windows = {name: self.per_group[name[0]].window(window, now) for name, window in self._group_windows.items()}
        self._group_windows = {name: window for name, window in windows.items() if window.started}
        self.heads = {name: id for name, id in self.heads.items() if live(id)}

    def _window(self, target: Target, now: int) -> Window:
        return self._bounds[target].window(self._windows.get(target, Window()), now)

    def uses(self, now: int, running: Callable[[Target], int], shut_groups: Callable[[str], int]) -> list[LimitUse]:
        """All of them, by kind and name."""
        windows = self._windows
        return [
            kept.use(
                target, running(target), windows.get(target, Window()), now, shut_groups(target.name) if kept.per_group else 0
            )
            for target, kept in sorted(self._kept.items(), key=lambda item: (item[0].kind, item[0].name))
        ]
