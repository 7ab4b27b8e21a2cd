"""How many jobs a process has, by task and by queue: what the limits of both are held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hawser.job import Claimed
from hawser.task import Task


class Headcount:
    """Jobs that are here, running or waiting for a slot."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._limits = {name: task.options.concurrency for name, task in tasks.items() if task.options.concurrency}
        self._by_task: Counter[str] = Counter()
        self.by_queue: Counter[str] = Counter()

    def came(self, job: Claimed) -> None:
        self.by_queue[job.queue] += 1
        if job.task in self._limits:
            self._by_task[job.task] += 1

    def left(self, job: Claimed) -> None:
        self.by_queue[job.queue] -= 1
        if job.task in self._limits:
            self._by_task[job.task] -= 1

    def room(self) -> dict[str, int]:
        """Of tasks with a limit of their own: how many more may come."""
        return {name: max(0, limit - self._by_task[name]) for name, limit in self._limits.items()}
