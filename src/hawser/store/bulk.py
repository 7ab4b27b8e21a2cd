"""Bulk operations: actions on all jobs that match a filter. The store keeps them, so they survive the process that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from hawser.store.api_key import Actor
from hawser.store.edits import Change
from hawser.store.operator import Filter

BULK_SILENCE: Final = 20.0
"""Seconds without a step after which an operation counts as interrupted. Its process is dead, frozen or cut off."""

BULK_KEPT: Final = 30 * 86_400.0
"""Seconds that an operation is kept at least after its end."""

BULKS_LISTED: Final = 100

BulkAction = Literal["requeue", "discard", "cancel", "change"]


class BulkState(StrEnum):
    """How far an operation is."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """An operator ended it, or it ended itself as its `StopRule` says."""
    FAILED = "failed"


class StopRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a requeue stops by itself: its jobs die again."""

    dead_share: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    """Of those that ended, more than this share died."""
    least: Annotated[int, Meta(ge=1, le=1_000)] = 10
    """Before so many have ended, nothing is judged."""


class BulkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation does, and where it ends."""

    action: BulkAction
    filter: Filter
    newest: str
    """It acts on no job that is newer than this one; empty when there is nothing to do."""
    most: int | None = None
    """It looks at so many jobs that match, those that are skipped included."""
    limit: int | None = None
    """It acts on so many."""
    rate: float
    """Jobs a second."""
    spread: float | None = None
    """Of a requeue: seconds over which the jobs fall due evenly; then there is no rate."""
    stop_if: StopRule | None = None
    """Of a requeue: it stops by itself when its jobs die again."""
    confirm: bool = False
    """Whether jobs that ask for a confirmation may be requeued."""
    change: Change = Change()
    """What a change makes of the jobs that wait."""
    by: str
    """Who started it."""
    reason: str | None = None

    def actor(self, id: str) -> Actor:
        """Who acts in each of its steps."""
        return Actor(self.by, self.reason, self.filter.told(), id)


class BulkOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation and how far it is."""

    id: str
    plan: BulkPlan
    state: BulkState = BulkState.RUNNING
    owner: str
    """The process that runs it, or ran it last."""
    turn: int = 1
    """Rises with each process that takes it over: the fence of its steps."""
    cursor: str | None = None
    """The last job that was looked at. What follows has smaller ids."""
    done: int = 0
    skipped: int = 0
    error: str | None = None
    """Why it failed, or stopped by itself."""
    started_at: datetime
    seen_at: datetime
    """When its last step was written."""
    ended_at: datetime | None = None
    interrupted: bool = False
    """It should run, and no process has written a step for `BULK_SILENCE` seconds."""


class BulkStep(msgspec.Struct, frozen=True, kw_only=True):
    """The next jobs of an operation. One without jobs is a sign of life."""

    id: str
    turn: int
    behind: str | None
    """The cursor from which these jobs were found."""
    cursor: str | None
    """Where the next step goes on."""
    ids: Sequence[str] = ()
    skipped: int = 0
    """Jobs that were looked at and left out."""
    ends: BulkState | None = None
    error: str | None = None
    spread: float = 0.0
    """Of a requeue: seconds over which these jobs fall due."""
    delay: float = 0.0
    """Of a requeue: seconds until the first of them does."""


class BulkStore(Protocol):
    """What bulk operations need. One process at a time may write the steps of an operation."""

    async def start_bulk(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        """Keep a new operation, which this process runs; starting it again changes nothing."""

    async def bulk(self, id: str) -> BulkOperation | None:
        """The operation as any process of the store sees it, or None."""

    async def bulks(self) -> list[BulkOperation]:
        """The latest operations, newest first, at most `BULKS_LISTED`."""

    async def step_bulk(self, step: BulkStep) -> BulkOperation | None:
        """Act on the jobs of a step, leave their audit record, count them and move the cursor, in one write.

        Jobs that a step requeues with a spread fall due evenly over it, from its delay on.
        None, and nothing changes, when the operation has ended, when the turn is not the current one, or when the cursor
        is no longer the one that the step began at.
        """

    async def take_bulks(self, owner: str, limit: int) -> list[BulkOperation]:
        """Take over up to `limit` interrupted operations, each for one process only, and with a new turn.

        An operation is interrupted when its last step is `BULK_SILENCE` seconds old, or was written by a clock that has been
        set back since.
        """

    async def release_bulk(self, id: str, turn: int) -> None:
        """Let another process take over a running operation at once, when the turn is the current one."""

    async def stop_bulk(self, id: str, actor: Actor) -> BulkOperation | None:
        """End a running operation and leave an audit record, in one write; the operation as it is then, or None when there is
        none.

        No step is written after that. Stopping one that has ended changes nothing and leaves no record.
        """
