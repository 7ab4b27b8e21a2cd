"""The part of the seam about weights: how many places a turn a group is offered."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from hawser.store.api_key import Actor

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
