"""The part of the seam that says for how long a store keeps what it was given."""

from __future__ import annotations

from typing import Protocol

from hawser.store.operator import Retention


class KeepingStore(Protocol):
    """What an operator must know of a store before trusting it."""

    retention: Retention
    """How long finished jobs are kept when the app does not say."""
    done_most: int | None
    """Done jobs that are kept at most, whatever their retention; None: as many as there are."""

    async def failovers(self) -> int:
        """How often a replica was seen to take the place of the server, so that what this had accepted last may be lost."""
