"""A backlog that stays as deep as it is, and what a job costs meanwhile."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Callable
from string import ascii_letters
from typing import Any, Final

import msgspec

from hawser.errors import StoreUnavailable
from hawser.job import NewJob
from hawser.lab.bottleneck import Spent, metered
from hawser.lab.experiment import Lab
from hawser.lab.load import Crew, NewClaims, Ongoing, percentile
from hawser.lab.store_under_test import Base
from hawser.store import Store

FEEDER_LOOKS_EVERY_S: Final = 0.02
"""Seconds between two looks at how many are done."""

FED_BYTES: Final = 8_000_000
FED_JOBS: Final = 5_000
"""The most in one enqueue."""


JOBS_IN_A_STRETCH: Final = 20_000
"""Jobs that a stretch of time should have: those that are just under way at its ends are counted wrongly."""

STRETCH_AT_MOST_TIMES: Final = 4
"""Times its seconds that a stretch may last for that, in steps of a quarter."""


class JobMix:
    """Jobs that do nothing, over so many queues and tasks by turns, each with a payload of so many bytes."""

    def __init__(self, *, queues: int = 1, tasks: int = 1, payload: int = 0) -> None:
        self.queues = ["default"] if queues == 1 else [f"queue{number}" for number in range(queues)]
        self.tasks = ["noop"] if tasks == 1 else [f"noop{number}" for number in range(tasks)]
        self.at_once = min(FED_JOBS, max(1, FED_BYTES // max(1, payload)))
        filler = payload - len(b'{"seq":1000000,"to":"user@example.com"}')
        # As good as random, so that no store makes it smaller.
        self._to = "user@example.com" + "".join(random.Random(payload).choices(ascii_letters, k=filler))  # noqa: S311
        self._made = 0

    def take(self, count: int) -> list[NewJob]:
        """The next so many."""
        numbers = range(self._made, self._made + count)
        self._made += count
        queues, tasks, to = self.queues, self.tasks, self._to.encode()
        return [
            NewJob(
                task=tasks[number % len(tasks)],
                queue=queues[number % len(queues)],
                body=b'{"seq":%d,"to":"%s"}' % (number, to),
            )
            for number in numbers
        ]


class Feeder(Ongoing):
    """Enqueues a job for each that is done, so that as many wait as before."""

    def __init__(self, store: Store, mix: JobMix) -> None:
        super().__init__()
        self._store = store
        self._mix = mix

    async def _run(self) -> None:
        seen = (await self._store.stats()).done
        while not self._stop:
            behind = (await self._store.stats()).done - seen
            some = min(behind, self._mix.at_once)
            if some > 0:
                await self._store.enqueue(self._mix.take(some))
                seen += some
            if some == behind:
                await asyncio.sleep(FEEDER_LOOKS_EVERY_S)


async def deepen(lab: Lab, store: Store, mix: JobMix, depth: int, words: str) -> None:
    """Enqueue until so many wait."""
    waiting = (await store.stats()).ready
    while waiting < depth:
        some = min(mix.at_once, depth - waiting)
        await store.enqueue(mix.take(some))
        waiting += some
        lab.show(f"fill for {words}", waiting, depth)


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a job costs from its enqueue to its end, by parts: the median of a few stretches of time."""

    cpu_us: float
    """Of the worker's processes, the server's and the producer's together."""
    worker_us: float
    server_us: float
    producer_us: float
    log_bytes: int
    per_s: int
    jobs_per_claim: float
    claim_p50_ms: float
    claim_p99_ms: float


async def cost_of(lab: Lab, base: Base, mix: JobMix, crew: Crew, claims: NewClaims, stretches: int, seconds: float) -> CostRow:
    """Feed the workers, and measure what each job costs."""
    store, found = base.store, []
    async with Feeder(store, mix):
        await _warm(store, crew)
        claims.read()
        for _ in range(stretches):
            before = (await store.stats()).done
            async with metered(lab.place, base.url) as meter:
                await asyncio.sleep(seconds)
                for _ in range(0 if lab.quick else 4 * (STRETCH_AT_MOST_TIMES - 1)):
                    if (await store.stats()).done - before >= JOBS_IN_A_STRETCH:
                        break
                    await asyncio.sleep(seconds / 4)
            done = (await store.stats()).done - before
            if not done:
                raise StoreUnavailable(f"the workers did no job in {seconds:g} s; they said:\n{crew.last_words()}")
            found.append((meter.require(), done))
        seen = claims.read()
    return _row(found, [took for _, took in seen], [size for size, _ in seen])


def _row(found: list[tuple[Spent, int]], took: list[float], sizes: list[int]) -> CostRow:
    def of_a_job(part: Callable[[Spent], float]) -> float:
        return statistics.median(part(spent) / jobs for spent, jobs in found)

    return CostRow(
        cpu_us=round(of_a_job(lambda spent: spent.cpu_s) * 1e6, 1),
        worker_us=round(of_a_job(lambda spent: spent.worker_cpu_s) * 1e6, 1),
        server_us=round(of_a_job(lambda spent: spent.server_cpu_s) * 1e6, 1),
        producer_us=round(of_a_job(lambda spent: spent.other_cpu_s) * 1e6, 1),
        log_bytes=round(of_a_job(lambda spent: spent.log_bytes)),
        per_s=round(statistics.median(jobs / spent.seconds for spent, jobs in found)),
        jobs_per_claim=round(sum(sizes) / max(1, len(sizes)), 1),
        claim_p50_ms=round(percentile(took, 0.5) * 1e3, 2),
        claim_p99_ms=round(percentile(took, 0.99) * 1e3, 2),
    )


async def _warm(store: Store, crew: Crew) -> None:
    """Until the workers are at it: starting processes is no part of the cost."""
    first = (await store.stats()).done
    while (await store.stats()).done == first:
        if not crew.lives:
            raise StoreUnavailable(f"the workers ended; they said:\n{crew.last_words()}")
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


def as_figures(row: CostRow) -> dict[str, Any]:
    return msgspec.to_builtins(row)  # type: ignore[no-any-return]
