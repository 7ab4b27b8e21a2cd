"""The part of the seam that limits are: what an operator sets, what code declares, how much of it is in use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import msgspec

from hawser.limit import Limit
from hawser.store.api_key import Actor
from hawser.store.operator import Target


class LimitUse(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and how much of it is in use."""

    target: Target
    limit: Limit
    """What is in force: what an operator set, else what code declares."""
    declared: Limit | None = None
    """What code declares of the task."""
    set: bool = False
    """Whether an operator set it."""
    since: datetime | None = None
    by: str = "app"
    running: int = 0
    """Jobs of it that run now."""
    started: int = 0
    """Jobs of it that count as started in the last period; 0 without a rate."""
    opens_at: datetime | None = None
    """When its rate lets the next one start. None when the rate keeps no job back, and of a limit per group."""
    shut_groups: int = 0
    """Groups with waiting jobs that a limit per group keeps back, by queue and priority, counted up to 10,000."""

    @property
    def shut(self) -> bool:
        """Whether it keeps jobs back now. A limit per group shuts groups, not the task."""
        if self.limit.per_group:
            return False
        return self.opens_at is not None or (self.limit.running is not None and self.running >= self.limit.running)


class LimitStore(Protocol):
    """Limits on queues and tasks."""

    async def set_limit(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        """Say how many jobs of a queue or task may wait, run and start, in place of what an operator said before.

        It applies from the next enqueue and claim on; what runs already goes on, and counts. A lower limit is reached as runs
        end. What an operator set stands in place of what code declares, also when it says nothing. None takes back what an
        operator set; False when there was nothing, which leaves no audit record.
        """

    async def declare_limits(self, limits: Mapping[str, Limit | None]) -> None:
        """Note the limits that a worker's code declares of its tasks, in place of what was declared of them before; None
        declares none."""

    async def limits(self) -> list[LimitUse]:
        """The limits that are set or declared, each with how much of it is in use, by kind and name."""
