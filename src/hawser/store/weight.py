"""The part of the seam about groups: how many places a turn one is offered, and what keeps a job of one back."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from hawser.store.api_key import Actor
from hawser.store.group_wait import GroupWait

MAX_WEIGHT: Final = 1_000


class Weight(msgspec.Struct, frozen=True):
    """How many places a turn a group of a queue is offered; 1 unless something else is said."""

    queue: str
    group: str
    weight: int


class WeightStore(Protocol):
    """What an operator says of groups."""

    async def set_weight(self, weight: Weight, actor: Actor) -> None:
        """Say how many places a turn a group of a queue is offered; it applies from the next claim on."""

    async def weights(self, queue: str | None = None) -> list[Weight]:
        """The weights that are not 1, of one queue or of all, by queue and group."""

    async def group_wait(self, id: str) -> GroupWait | None:
        """What keeps a waiting job of a group back: how much of a limit per group is in use, which job goes first where the order
        is kept, and how many groups and jobs are before it; None for a job without a group, and for one that does not wait or
        waits for others."""
