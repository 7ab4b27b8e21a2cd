"""Queues that the tasks of an app use and a worker does not serve, on purpose or by mistake."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hawser.errors import did_you_mean
from hawser.store import EVERY_QUEUE, Operator
from hawser.worker.options import WorkerOptions
from hawser.worker.served import chosen

if TYPE_CHECKING:
    from hawser.app import Hawser

_logger = logging.getLogger("hawser.worker")


def unserved(app: Hawser, options: WorkerOptions) -> dict[str, list[str]]:
    """The queues that tasks of the app name and this worker does not serve, with those tasks."""
    served = {queue.name for queue in options.queues}
    found: dict[str, list[str]] = {}
    if EVERY_QUEUE in served:
        return found
    for name, task in chosen(app.tasks, options).items():
        if task.template.queue not in served:
            found.setdefault(task.template.queue, []).append(name)
    return found


async def unknown(app: Hawser, options: WorkerOptions, store: Operator) -> dict[str, str]:
    """The queues that the worker serves and that neither a task of the app uses nor the store knows, with what may be meant."""
    used = {task.template.queue for task in app.tasks.values()}
    served = {queue.name for queue in options.queues} - used - {EVERY_QUEUE, "default"}
    if not served:
        return {}
    known = used | (await store.queues()).keys()
    return {queue: did_you_mean(queue, known) for queue in sorted(served - known)}


def warn_of_unknown(unknown: Mapping[str, str]) -> None:
    for queue, hint in unknown.items():
        _logger.warning("queue %s is served here, but no task names it and no job was ever in it; %s", queue, hint)


def warn_of(unserved: Mapping[str, Sequence[str]]) -> None:
    for queue, tasks in unserved.items():
        named = ", ".join(tasks[:5]) + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
        _logger.warning("queue %s is not served here, but %s use it; serve it here or in another worker", queue, named)
