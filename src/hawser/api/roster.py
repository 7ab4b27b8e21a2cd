"""The workers that pull over HTTP: they send no signs of life, but whoever asks for jobs or holds some lives."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from hawser.job import Claimed
from hawser.store import Beat, Store

BEAT_EVERY: Final = 5.0
MOST: Final = 10_000
"""Workers that are told of; what further ones do is not shown."""


class _Asked(NamedTuple):
    """What a worker last asked for."""

    by: str
    queues: tuple[str, ...]
    limit: int


class Roster:
    """Tells the store of the workers that one server has heard of lately. Jobs count as running where they were claimed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, tells: bool = True) -> None:
        self._clock = clock
        self._tells = tells
        """False: nobody asks for a turn, so nothing is remembered."""
        self._known: dict[str, _Asked] = {}
        self._heard: set[str] = set()
        """Since the last turn."""
        self._held: dict[str, tuple[str, float]] = {}
        """Jobs that were claimed here: by whom, and until when the lease stands."""

    def asks(self, worker: str, by: str, queues: Sequence[str], limit: int) -> None:
        if self._tells and (worker in self._known or len(self._known) < MOST):
            self._known[worker] = _Asked(by, tuple(queues), limit)
            self._heard.add(worker)

    def gets(self, worker: str, jobs: Sequence[Claimed], lease_for: float) -> None:
        if self._tells:
            until = self._clock() + lease_for
            self._held |= {job.id: (worker, until) for job in jobs}

    def settles(self, ids: Iterable[str]) -> None:
        for id in ids:
            worker, _ = self._held.pop(id, ("", 0.0))
            if worker in self._known:
                self._heard.add(worker)

    def extends(self, ids: Iterable[str], lease_for: float) -> None:
        until = self._clock() + lease_for
        for id in ids:
            if id in self._held:
                self._held[id] = (self._held[id][0], until)

    async def turn(self, store: Store) -> float:
        """Say who lives, and forget who does not."""
        now = self._clock()
        self._held = {id: held for id, held in self._held.items() if held[1] > now}
        running = Counter(worker for worker, _ in self._held.values())
        self._known = {worker: asked for worker, asked in self._known.items() if worker in self._heard or running[worker]}
        self._heard = set()
        if self._known:
            await store.beat([_beat(worker, asked, running[worker]) for worker, asked in self._known.items()])
        return BEAT_EVERY


def _beat(worker: str, asked: _Asked, running: int) -> Beat:
    slots = max(asked.limit, running)
    return Beat(worker=worker, host=f"http:{asked.by}", pid=0, version="http", queues=asked.queues, slots=slots, running=running)
