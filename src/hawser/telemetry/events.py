"""What happens in a worker, told in batches: a listener costs a call per batch, not per job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hawser.job import Claimed
from hawser.store import Reclaimed, SettleAnswer, Settlement

_logger = logging.getLogger("hawser.worker")


class ClaimedBatch(NamedTuple):
    """A claim that found jobs."""

    jobs: Sequence[Claimed]
    seconds: float
    """How long the claim took."""


class SettledBatch(NamedTuple):
    """A write of outcomes and the store's answer to each."""

    settlements: Sequence[Settlement]
    answers: Sequence[SettleAnswer]
    jobs: Sequence[Claimed]
    """The jobs that were settled, in the same order."""
    seconds: Sequence[float]
    """How long each ran; below 0 when it was handed back unstarted."""


def tell(listener: Callable[..., None], *about: object) -> None:
    """Call a listener. It may be the user's own: what it raises is logged, and no job fails for it."""
    try:
        listener(*about)
    except Exception:
        _logger.exception("a listener failed")


class Events:
    """Listens to a worker: subclass it and override what you want to hear. All are called on the event loop; be quick."""

    def claimed(self, batch: ClaimedBatch) -> None:
        """Jobs were claimed."""

    def settling(self, settlements: Sequence[Settlement]) -> None:
        """Outcomes are about to be written."""

    def settled(self, batch: SettledBatch) -> None:
        """Outcomes were written, or refused."""

    def dropped(self, count: int) -> None:
        """Outcomes were given up because their leases were over by our own clock."""

    def lost(self, count: int) -> None:
        """Runs were ended because their leases were gone."""

    def reclaimed(self, runs: Sequence[Reclaimed]) -> None:
        """Runs of others were taken back."""


class Listeners(Events):
    """Several that listen to one worker. What one raises is logged, and the others are called all the same."""

    def __init__(self, *listeners: Events) -> None:
        self._listeners = listeners

    def claimed(self, batch: ClaimedBatch) -> None:
        for listener in self._listeners:
            tell(listener.claimed, batch)

    def settling(self, settlements: Sequence[Settlement]) -> None:
        for listener in self._listeners:
            tell(listener.settling, settlements)

    def settled(self, batch: SettledBatch) -> None:
        for listener in self._listeners:
            tell(listener.settled, batch)

    def dropped(self, count: int) -> None:
        for listener in self._listeners:
            tell(listener.dropped, count)

    def lost(self, count: int) -> None:
        for listener in self._listeners:
            tell(listener.lost, count)

    def reclaimed(self, runs: Sequence[Reclaimed]) -> None:
        for listener in self._listeners:
            tell(listener.reclaimed, runs)
