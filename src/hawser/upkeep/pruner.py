"""Removes finished jobs after their retention, in small steps."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from hawser.store import Operator, Retention
from hawser.task import Task

BATCH: Final = 500
"""Jobs a step: few enough that no other call waits long for it."""

EVERY: Final = 60.0
BETWEEN: Final = 0.1
"""Seconds between two steps while there is more to remove."""


class Pruner:
    """Removes what is past its retention, and groups dead jobs of an older version. Looks about once a minute, with jitter; goes
    on without haste while there is more."""

    def __init__(self, store: Operator, retention: Retention, by_task: Mapping[str, Retention]) -> None:
        self._store = store
        self._retention = retention
        self._by_task = by_task

    async def turn(self) -> float:
        removed = await self._store.prune(self._retention, self._by_task, BATCH)
        grouped = await self._store.group_dead(BATCH)
        return BETWEEN if BATCH in (removed, grouped) else random.uniform(0.5, 1.0) * EVERY  # noqa: S311


def retentions(tasks: Mapping[str, Task[..., Any]]) -> dict[str, Retention]:
    """The retention of the tasks that have one of their own."""
    return {name: task.options.retention for name, task in tasks.items() if task.options.retention is not None}
