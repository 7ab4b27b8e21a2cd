"""Removes finished jobs after their retention, in small steps."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from hawser.store import Retention, Store
from hawser.task import Task

PRUNED_PER_STEP: Final = 500
"""Jobs a step: few enough that no other call waits long for it."""

PRUNE_EVERY_S: Final = 60.0
BETWEEN_PRUNES_S: Final = 0.1
"""Seconds between two steps while there is more to remove."""


class Pruner:
    """Removes what is past its retention, and groups dead jobs of an older version. Looks about once a minute, with jitter; goes
    on without haste while there is more."""

    def __init__(self, store: Store, retention: Retention | None, by_task: Mapping[str, Retention]) -> None:
        self._store = store
        self._retention = retention or store.retention
        self._by_task = by_task

    async def turn(self) -> float:
        removed = await self._store.prune(self._retention, self._by_task, PRUNED_PER_STEP)
        grouped = await self._store.group_dead(PRUNED_PER_STEP)
        return BETWEEN_PRUNES_S if PRUNED_PER_STEP in (removed, grouped) else random.uniform(0.5, 1.0) * PRUNE_EVERY_S  # noqa: S311


def retentions(tasks: Mapping[str, Task[..., Any]]) -> dict[str, Retention]:
    """The retention of the tasks that have one of their own."""
    return {name: task.options.retention for name, task in tasks.items() if task.options.retention is not None}
