"""The part of the seam by which a person changes single jobs: their place among those that wait, and leases of dead workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from hawser.store.api_key import Actor
from hawser.store.operator import Acted


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed of a waiting job; None leaves it as it is."""

    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    """An aware instant on the store's clock."""
    delay: float | None = None
    """Seconds from now, instead of `run_at`; 0 is due at once."""


class Editor(Protocol):
    """What changes single jobs. Every action takes an `Actor` and leaves one audit record, in the same write."""

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        """Change the queue, the priority or the due time of waiting jobs, at once; what the change does not name stays.

        Running and finished jobs are in the wrong state, and so are those that wait for other jobs.
        A job that was due keeps its place by its due time, but one that
        waits for another attempt counts as due from now on. Its key goes along into another queue; when another job holds it
        there, nothing changes. A depth limit does not keep a job out of its new queue.
        """

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        """End waiting jobs as dead, at once, with the reason kept and their attempts as they are. Other states are wrong."""

    async def end_leases(self, worker: str, actor: Actor) -> int:
        """End the leases of a worker that is known to be dead, and say how many; the next `reclaim` takes its runs back.

        The leases of other workers stay. Until its runs are reclaimed, a worker that lives may extend and settle them.
        """
