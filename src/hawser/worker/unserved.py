"""Queues that the tasks of an app use and a worker does not serve: meant so, or forgotten."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hawser.worker.options import WorkerOptions

if TYPE_CHECKING:
    from hawser.app import Hawser

_logger = logging.getLogger("hawser.worker")


def unserved(app: Hawser, options: WorkerOptions) -> dict[str, list[str]]:
    """The queues that tasks of the app name and this worker does not serve, with those tasks."""
    served = {queue.name for queue in options.queues}
    found: dict[str, list[str]] = {}
    for name, task in app.tasks.items():
        if task.template.queue not in served:
            found.setdefault(task.template.queue, []).append(name)
    return found


def warn_of(unserved: Mapping[str, Sequence[str]]) -> None:
    for queue, tasks in unserved.items():
        named = ", ".join(tasks[:5]) + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
        _logger.warning(
            "queue %s is not served here, but is that of %s; serve it too, or have another worker do it", queue, named
        )
