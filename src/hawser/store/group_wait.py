"""What keeps a waiting job of a group back."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from hawser.limit import Limit

WAIT_COUNTED: Final = 10_000
"""Up to this number groups and jobs are counted that are before another."""


class GroupWait(msgspec.Struct, frozen=True):
    """Where a waiting job of a group stands."""

    limit: Limit | None = None
    """The limit per group of its task."""
    running: int = 0
    """Jobs of its task and group that run. Exact where the limit bounds them; with a rate alone a store need not count them."""
    started: int = 0
    """Those that count as started in the last period; 0 without a rate."""
    opens_at: datetime | None = None
    """When the rate lets the next one start. None when it keeps no job back."""
    first: str | None = None
    """The job that goes before all others, where the order of the group is kept."""
    first_runs: bool = False
    groups_before: int = 0
    """Groups of its queue and priority whose turn is before that of its own, counted up to `WAIT_COUNTED`."""
    jobs_before: int = 0
    """Jobs of its group, queue and priority that are due for longer, counted up to `WAIT_COUNTED`."""
