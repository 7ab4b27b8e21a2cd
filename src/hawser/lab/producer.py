"""Enqueues under faults, and writes down what it was told."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

import msgspec

from hawser.errors import NotAStore, OutcomeUnknown, StoreUnavailable
from hawser.job import FOREVER, NewJob
from hawser.lab.generator import LoadPlan
from hawser.lab.journal import Journal, JournalRun, What
from hawser.lab.load import Ongoing
from hawser.store import Store

PRODUCER_JOBS_PER_CALL: Final = 20
REFUSED_RETRY_S: Final = 0.05
"""Seconds until a refused batch is tried again."""

KEYED: Final = 0.1
"""The share of batches that bring a job with a key, and bring it again."""

REPEATED: Final = 0.5
"""The share of unknown batches that are repeated; the others stay unknown, as with a client that gave up."""


class LoadProducer(Ongoing):
    """Sends a load in batches at an even rate for as long as the context lasts."""

    def __init__(self, store: Store, journal: Journal, load: LoadPlan, rate: float, seed: int) -> None:
        super().__init__()
        self._store = store
        self._journal = journal
        self._load = load
        self._rate = rate
        self._dice = random.Random(seed)  # noqa: S311  # no secret: a run that can be repeated
        self._believes = True
        self.sent = 0

    def believe_nothing(self) -> None:
        """The store's disk loses its power: what it says from now on may not be so, and is written down as unknown."""
        self._believes = False

    async def _run(self) -> None:
        began = time.monotonic()
        while not self._stop:
            wait = began + self.sent / self._rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            jobs = self._load.take(PRODUCER_JOBS_PER_CALL)
            self.sent += PRODUCER_JOBS_PER_CALL
            if self._dice.random() < KEYED:
                await self._twice(jobs)
            else:
                await self.send(jobs)

    async def _twice(self, jobs: list[NewJob]) -> None:
        """The first job has a key, and another one of the same task with that key comes right after it."""
        first = msgspec.structs.replace(jobs[0], key=f"order:{jobs[0].id}", key_ttl=FOREVER)
        second = msgspec.structs.replace(first, id=self._load.take(1)[0].id)
        await self.send([first, *jobs[1:]])
        await self.send([second])

    async def send(self, jobs: list[NewJob]) -> None:
        """One batch, until its outcome is known or it is given up."""
        runs = [JournalRun(job.id) for job in jobs]
        while True:
            self._journal.write(What.ENQUEUE, runs)
            try:
                answers = await self._store.enqueue(jobs)
                self._check_belief()
            except (OutcomeUnknown, NotAStore):
                # A disk that dies may look like a damaged file.
                self._journal.write(What.UNKNOWN, runs)
                if self._stop or self._dice.random() >= REPEATED:
                    return
            except StoreUnavailable:
                self._journal.write(What.REFUSED, runs)
                if self._stop:
                    return
            else:
                self._journal.write(What.ACCEPTED, [JournalRun(job.id) for job in jobs if job.key is None])
                for job, answer in zip(jobs, answers, strict=True):
                    if job.key is not None:
                        self._journal.write(What.ACCEPTED, [JournalRun(answer.id)], job.key)
                        if answer.id != job.id:
                            self._journal.write(What.DUPLICATE, [JournalRun(job.id)])
                return
            await asyncio.sleep(REFUSED_RETRY_S)

    def _check_belief(self) -> None:
        if not self._believes:
            raise OutcomeUnknown("the disk has no power")
