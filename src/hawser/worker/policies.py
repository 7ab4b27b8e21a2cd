"""The queues' policies, as one worker process knows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hawser.policy import QueuePolicy
from hawser.store import Operator, Share

POLICIES_READ_EVERY_S: Final = 2.0
"""Seconds. The claimer reads them, between its claims, so that an idle worker does not wake up for it."""


class Policies:
    """Read again every few seconds: a change is heard of without a restart."""

    def __init__(self, store: Operator, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: Mapping[str, QueuePolicy] = {}
        self._read_at = float("-inf")

    async def refresh(self) -> None:
        if self.are_old:
            now = self._clock()
            self._known = await self._store.policies()
            self._read_at = now

    @property
    def are_old(self) -> bool:
        """Whether it is time to read them again."""
        return self._clock() - self._read_at >= POLICIES_READ_EVERY_S

    @property
    def is_any(self) -> bool:
        """Whether a queue has one."""
        return bool(self._known)

    def of(self, queue: str) -> QueuePolicy | None:
        return self._known.get(queue)

    def bound(self, shares: Sequence[Share], held: Mapping[str, int]) -> Sequence[Share]:
        """The shares, with room left for as many jobs as each queue may have at once; `held` are those that it has."""
        if not any(policy.concurrency for policy in self._known.values()):
            return shares
        return [Share(share.queue, share.places, self._room(share.queue, held)) for share in shares]

    def _room(self, queue: str, held: Mapping[str, int]) -> int | None:
        policy = self._known.get(queue)
        return max(0, policy.concurrency - held.get(queue, 0)) if policy and policy.concurrency else None
