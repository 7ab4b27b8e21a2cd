"""Bodies of actions on all jobs that match."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hawser.api.bodies import MAX_RATE, NAME, TEXT, Argument, Dated, GroupId, Id, In, Instant, Name, Reason, said
from hawser.clock import MAX_DELAY
from hawser.job import MAX_PRIORITY
from hawser.store.bulk import StopRule


class FilterIn(Dated):
    """Which jobs; all given fields must hold, and none means all."""

    group: GroupId | None = None
    """Dead jobs of one task and kind of error."""
    queue: Name | None = None
    task: Name | None = None
    key: Annotated[str, Meta(max_length=512, pattern=TEXT)] | None = None
    tag: Annotated[str, Meta(max_length=64, pattern=TEXT)] | None = None
    batch: Id | None = None
    argument: Argument | None = None
    since: Instant | None = None
    until: Instant | None = None


class BulkIn(In):
    """An action on all jobs that match: with `dry_run` it only counts, and the answer's token lets the real call through."""

    filter: FilterIn = msgspec.field(default_factory=FilterIn)
    rate: Annotated[float, said(exclusiveMinimum=0, maximum=MAX_RATE)] = 100.0
    """Jobs a second."""
    spread: Annotated[float, said(exclusiveMinimum=0, maximum=MAX_DELAY)] | None = None
    """Of a requeue, in place of the rate: seconds over which the jobs fall due evenly. All are requeued at once."""
    stop_if: StopRule | None = None
    """Of a requeue: stop by itself when its jobs die again. No more than 50 are requeued before `least` of them have ended."""
    limit: Annotated[int, Meta(ge=1)] | None = None
    """Act on no more than so many, the newest first."""
    dry_run: bool = False
    token: Annotated[str, Meta(max_length=200)] | None = None
    reason: Reason | None = None
    confirm: bool = False
    """For tasks marked `confirm_replay`, which are skipped otherwise."""


class RetryAllIn(BulkIn):
    """As of a requeue, of jobs that were cancelled, too."""

    state: Literal["dead", "cancelled"] = "dead"


class ChangeAllIn(BulkIn):
    """As of a cancel; what is changed may be left out of the dry run."""

    queue: Annotated[str, said(pattern=NAME)] | None = None
    priority: Annotated[int, said(minimum=0, maximum=MAX_PRIORITY)] | None = None
