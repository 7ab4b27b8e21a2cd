"""What a worker asks for in a claim: from which queues, how many of each, and what it leaves to others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from hawser.job import Claimed
from hawser.store import Leave, Share
from hawser.worker.options import QueueWeight
from hawser.worker.policies import Policies
from hawser.worker.refusals import Refusals
from hawser.worker.served import ServedQueues


class Demand:
    """The queues that the worker serves, what their policies allow, and what it cannot run."""

    def __init__(self, served: ServedQueues, policies: Policies, refusals: Refusals) -> None:
        self._served = served
        self._policies = policies
        self._refusals = refusals
        self._shares = Shares(served.current)

    async def refresh(self) -> None:
        """Learn from the store what has changed, now and then."""
        if self._policies.are_old:
            # Together, so that a store may answer both in one look.
            for error in await asyncio.gather(self._policies.refresh(), self._refusals.refresh(), return_exceptions=True):
                if error is not None:
                    raise error
        else:
            await self._refusals.refresh()
        if await self._served.refresh():
            self._shares = Shares(self._served.current)

    @property
    def is_settled(self) -> bool:
        """Whether nothing that is read now and then bears on claims: no policy, nothing left to others, no queue to be found."""
        return not (self._policies.is_any or self._served.all or self.leave.tasks or self.leave.jobs)

    @property
    def queues(self) -> list[str]:
        return [queue.name for queue in self._served.current]

    @property
    def leave(self) -> Leave:
        return self._refusals.leave

    def shares(self, places: int, held: Mapping[str, int]) -> Sequence[Share]:
        """The shares of a claim for so many places; `held` are the jobs of each queue that run here."""
        return self._policies.bound(self._shares.of(places), held)

    def took(self, jobs: Sequence[Claimed]) -> None:
        """What that claim found."""
        self._shares.took(jobs)


class Shares:
    """How many places each queue is offered, so that over time the weights hold."""

    def __init__(self, queues: Sequence[QueueWeight]) -> None:
        self._weights = {queue.name: queue.weight or 0 for queue in queues}
        self._weighted = any(self._weights.values())
        self._credit = dict.fromkeys(self._weights, 0.0)
        self._places = 0

    def of(self, places: int) -> list[Share]:
        """The shares of a claim. Without weights: all to the first queue that has jobs."""
        if not self._weighted:
            return [Share(name) for name in self._weights]
        self._places = places
        offers = self._offers()
        return [Share(name, offers[name]) for name in sorted(offers, key=lambda name: -self._credit[name])]

    def took(self, jobs: Sequence[Claimed]) -> None:
        """What that claim found. An empty queue saves no places up: what it could not use goes to the others by their
        weights."""
        if not self._weighted:
            return
        if len(jobs) < self._places:
            # There was room for all: no queue is owed a place.
            self._credit = dict.fromkeys(self._weights, 0.0)
            return
        offers, taken = self._offers(), Counter(job.queue for job in jobs)
        self._hand_out(self._places, self._weights)
        for name, count in taken.items():
            self._credit[name] -= count
        # The rest is given out when all have had their share: a queue that took less than it was offered had no more jobs.
        if any(taken[name] > offer for name, offer in offers.items()):
            empty = {name for name, offer in offers.items() if taken[name] < offer}
            left = sum(self._credit[name] for name in empty)
            self._credit |= dict.fromkeys(empty, 0.0)
            self._hand_out(left, {name: weight for name, weight in self._weights.items() if name not in empty})

    def _offers(self) -> dict[str, int]:
        total = sum(self._weights.values())
        fair = {name: self._places * weight / total for name, weight in self._weights.items()}
        return {name: max(0, round(self._credit[name] + fair[name])) for name in self._weights}

    def _hand_out(self, places: float, weights: Mapping[str, int]) -> None:
        total = sum(weights.values())
        for name, weight in weights.items():
            self._credit[name] += places * weight / total
