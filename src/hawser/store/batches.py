"""The part of the seam for batches."""

from __future__ import annotations

from typing import Protocol

from hawser.batch import Batch, BatchPage, BatchState, NewBatch
from hawser.store.api_key import Actor
from hawser.store.operator import JOBS_PER_PAGE, Acted


class BatchStore(Protocol):
    """What producers and operators of batches need."""

    async def open_batch(self, batch: NewBatch) -> bool:
        """Add a batch and the jobs that it releases, all or none; False, and nothing changes, when the store has its id already.

        Each of these jobs is held, and released once: `then` when the batch is closed and all its members have ended,
        `on_success` when all are done, also later by a requeue, `on_dead` at the first death. When it ends with a cancelled
        member and no dead one, `on_success` is cancelled; when it ends without a death, `on_dead` is. A batch counts as one
        member of its parent until it has ended. A parent that the store does not have, that has ended or is cancelled is
        refused with `InvalidJob`, and nothing is written. Other jobs may wait for a batch as for a job: it is done when all
        its members are.
        """

    async def close_batch(self, id: str, actor: Actor | None = None) -> Acted:
        """Say that its producer adds no more. A batch that is not closed does not end. An empty batch ends when it is closed. One
        that is closed already is in the wrong state. With an actor it leaves an audit record.
        """

    async def cancel_batch(self, id: str, actor: Actor) -> Acted:
        """Close a batch, end its members that wait, and ask the workers of those that run to stop; so in batches inside it.

        A crash in the middle leaves no member behind: each `reclaim` goes on with it. A batch that has ended is in the wrong
        state.
        """

    async def batch(self, id: str) -> Batch | None:
        """The batch, or None. Its counts are exact, however its members ended. Its cost does not grow with the number of its
        members.
        """

    async def batches(self, state: BatchState | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE) -> BatchPage:
        """Batches in that state, or all, newest first, from behind the cursor `after`. Following `next` to its end visits every
        batch that is there throughout, once.
        """

    async def live_batches(self) -> dict[BatchState, int]:
        """How many batches are open and how many run; those that have ended are not counted."""
