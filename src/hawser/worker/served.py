"""What a worker serves: the queues that it takes from, and the tasks that it runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hawser.errors import ConfigError, did_you_mean
from hawser.store import EVERY_QUEUE, Operator
from hawser.task import Task
from hawser.worker.options import QueueWeight, WorkerOptions

NEW_QUEUES_LOOK_EVERY_S: Final = 2.0
"""Seconds between looks for new queues, where a worker serves all of them: how late the first job of a new queue may start."""


def chosen(tasks: Mapping[str, Task[..., Any]], options: WorkerOptions) -> dict[str, Task[..., Any]]:
    """The tasks that the worker runs; `ConfigError` names one that the app does not have."""
    for option, names in (("tasks", options.tasks or ()), ("not_tasks", options.not_tasks)):
        for name in names:
            if name not in tasks:
                raise ConfigError(f"{option}: the app has no task {name!r}; {did_you_mean(name, tasks)}")
    wanted = tasks if options.tasks is None else options.tasks
    left = {name: tasks[name] for name in wanted if name not in options.not_tasks}
    if not left and tasks:
        raise ConfigError("tasks: no task is left to run; name one that not_tasks does not have")
    return left


class ServedQueues:
    """The queues by name and weight. Where all are served, those that the store knows are looked up now and then."""

    def __init__(self, store: Operator, queues: Sequence[QueueWeight], own: Iterable[str]) -> None:
        """`own`: the queues of the worker's tasks, which the store may not know yet."""
        self._store = store
        self._given = tuple(queues)
        self._own = frozenset(own)
        self.all = any(queue.name == EVERY_QUEUE for queue in queues)
        self._read_at = float("-inf")
        self.current = self._given if not self.all else self._expanded(())

    async def refresh(self) -> bool:
        """Whether there are others than before."""
        if not self.all or time.monotonic() - self._read_at < NEW_QUEUES_LOOK_EVERY_S:
            return False
        self._read_at = time.monotonic()
        before, self.current = self.current, self._expanded(await self._store.queues())
        return self.current != before

    def _expanded(self, known: Iterable[str]) -> tuple[QueueWeight, ...]:
        named = {queue.name for queue in self._given}
        others = sorted({*self._own, *known} - named) or ["default"]
        expanded: list[QueueWeight] = []
        for queue in self._given:
            if queue.name == EVERY_QUEUE:
                expanded += (QueueWeight(name, queue.weight or 1) for name in others if name not in named)
            else:
                expanded.append(queue)
        return tuple(expanded)
