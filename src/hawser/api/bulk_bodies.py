"""Bodies of actions on all jobs that match."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hawser.api.bodies import MAX_RATE, TEXT, Argument, Dated, GroupId, Id, In, Instant, Name, Reason
from hawser.clock import MAX_DELAY


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
    rate: Annotated[float, Meta(gt=0, le=MAX_RATE)] = 100.0
    """Jobs a second."""
    spread: Annotated[float, Meta(gt=0, le=MAX_DELAY)] | None = None
    """Of a requeue, in place of the rate: seconds over which the jobs fall due evenly. All are requeued at once."""
    limit: Annotated[int, Meta(ge=1)] | None = None
    """Act on no more than so many, the newest first."""
    dry_run: bool = False
    token: Annotated[str, Meta(max_length=200)] | None = None
    reason: Reason | None = None
    confirm: bool = False
    """For tasks marked `confirm_replay`, which are skipped otherwise."""
