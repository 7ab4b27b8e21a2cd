"""The workers that pull over HTTP: they send no signs of life, but one that asks for jobs or holds some counts as alive."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from hawser.cycle import Unasked
from hawser.job import Claimed
from hawser.store import Beat, Store

BEAT_EVERY: Final = 5.0
MOST_PULL_WORKERS: Final = 10_000
"""Workers that are told of; what further ones do is not shown."""


class _PullWorker(NamedTuple):
    """What a worker last asked for."""

    by: str
    queues: tuple[str, ...]
    limit: int


class _PulledJob(NamedTuple):
    """A job that was claimed here."""

    worker: str
    until: float
    """When the lease runs out."""
    since: float
    job: Claimed
    """Without its body, which is not needed any more."""


class PullWorkers:
    """Tells the store of the workers that one server has heard of lately. Jobs count as running where they were claimed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, tells: bool = True) -> None:
        self._clock = clock
        self._tells = tells
        """False: no upkeep runs here, so nothing is remembered."""
        self._known: dict[str, _PullWorker] = {}
        self._heard: set[str] = set()
        """Since the last turn."""
        self._held: dict[str, _PulledJob] = {}

    def asks(self, worker: str, by: str, queues: Sequence[str], limit: int) -> None:
        if self._tells and (worker in self._known or len(self._known) < MOST_PULL_WORKERS):
            self._known[worker] = _PullWorker(by, tuple(queues), limit)
            self._heard.add(worker)

    def gets(self, worker: str, jobs: Sequence[Claimed], lease_for: float) -> None:
        if self._tells:
            now = self._clock()
            self._held |= {job.id: _PulledJob(worker, now + lease_for, now, replace(job, body=b"")) for job in jobs}

    def holder(self, id: str, lease: int) -> str | None:
        """The worker that claimed this run here; None when it was claimed elsewhere, or is not known any more."""
        held = self._held.get(id)
        return held.worker if held is not None and held.job.lease == lease else None

    def settles(self, ids: Iterable[str]) -> dict[str, tuple[Claimed, float]]:
        """Of these jobs those that were claimed here, and for how many seconds they were held."""
        held = {id: self._held.pop(id) for id in ids if id in self._held}
        self._heard |= {each.worker for each in held.values() if each.worker in self._known}
        return {id: (each.job, self._clock() - each.since) for id, each in held.items()}

    def extends(self, ids: Iterable[str], lease_for: float) -> None:
        until = self._clock() + lease_for
        for id in ids:
            if id in self._held:
                self._held[id] = self._held[id]._replace(until=until)

    async def turn(self, store: Store) -> float:
        """Say who lives, and forget who does not."""
        now = self._clock()
        self._held = {id: held for id, held in self._held.items() if held.until > now}
        running = Counter(held.worker for held in self._held.values())
        self._known = {worker: asked for worker, asked in self._known.items() if worker in self._heard or running[worker]}
        self._heard = set()
        if self._known:
            await store.beat([_beat(worker, asked, running[worker]) for worker, asked in self._known.items()])
            return BEAT_EVERY
        return Unasked(BEAT_EVERY)


def _beat(worker: str, asked: _PullWorker, running: int) -> Beat:
    slots = max(asked.limit, running)
    return Beat(worker=worker, host=f"http:{asked.by}", pid=0, version="http", queues=asked.queues, slots=slots, running=running)
