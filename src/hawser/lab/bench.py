"""One store in figures: enqueue, drain, both at once, claim, pickup; and whether anything was lost."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from typing import NamedTuple

import msgspec

from hawser.job import NewJob
from hawser.lab.generator import noops
from hawser.lab.load import NewClaims, Show, check, done_count, percentile, produce, quiet, rate, wait_done, workers
from hawser.store import Filter, Store
from hawser.stores import make_store

BENCH_JOBS_PER_CALL = 400
PICKUPS, PICKUP_RATE = 600, 200


class BenchFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a bench found."""

    store: str
    jobs: int
    processes: int
    slots: int
    claim_batch: int
    enqueue_per_s: int
    """In batches of 400, one producer, durable before each returns."""
    drain_per_s: int
    """Of a backlog, from the first job that was done to the last."""
    steady_per_s: int
    """Enqueued and drained at once, from the first enqueue to the last job done."""
    claim_p50_ms: float
    claim_p99_ms: float
    """Of the claims during drain and steady that found jobs, as the worker waits for them."""
    enqueue_p50_ms: float
    enqueue_p99_ms: float
    """Of single jobs, one after the other, at 200 a second."""
    pickup_p50_ms: float
    pickup_p99_ms: float
    """From enqueue to start, by the store's clock, at 200 single jobs a second."""
    lost: int
    """Accepted jobs that were not done in the end."""
    duplicated: int
    """Jobs that were started more than once."""
    durable: bool


Around = Callable[[], AbstractAsyncContextManager[object]]
"""Makes what is entered before the first enqueue and left after the last job of the two phases."""


async def bench(
    url: str, *, jobs: int, processes: int, slots: int, claim_batch: int, show: Show, around: Around = nullcontext
) -> BenchFigures:
    """Measure a store. It must be empty of jobs in the queue `default`, and it keeps what the bench put in."""
    store = make_store(url)
    await store.open()
    try:
        with tempfile.TemporaryDirectory(prefix="hawser-bench-") as folder:
            work = Work(url, Path(folder), jobs, processes, slots, claim_batch)
            return await _measure(store, work, show, around)
    finally:
        await store.close()


class Work(NamedTuple):
    """What is to be done."""

    url: str
    folder: Path
    jobs: int
    processes: int
    slots: int
    claim_batch: int


async def _measure(store: Store, work: Work, show: Show, around: Around) -> BenchFigures:
    url, folder, count, processes, slots, claim_batch = work
    before = await done_count(store)
    backlog, stream, singles = noops(count), noops(count), noops(PICKUPS)
    async with AsyncExitStack() as phases:
        await phases.enter_async_context(around())
        began = time.perf_counter()
        await produce(store, backlog, BENCH_JOBS_PER_CALL, show, "enqueue")
        enqueued_in = time.perf_counter() - began
        with workers(url, folder, processes=processes, slots=slots, claim_batch=claim_batch) as crew:
            drained = await wait_done(store, before + count, crew, show, "drain")
            began = time.perf_counter()
            producing = asyncio.ensure_future(produce(store, stream, BENCH_JOBS_PER_CALL, quiet, ""))
            steady = await wait_done(store, before + 2 * count, crew, show, "steady")
            await producing
            steady_in = steady[-1][0] - began
            await phases.aclose()
            claims = NewClaims(folder).seconds()
            enqueues = await _trickle(store, singles, show)
            await wait_done(store, before + 2 * count + PICKUPS, crew, quiet, "")
    pickups = await _pickups(store, {job.id for job in singles})
    toll = await check(store, {job.id for job in (*backlog, *stream, *singles)})
    return BenchFigures(
        store="redis" if url.startswith(("unix:", "rediss:")) else url.partition(":")[0],
        jobs=count,
        processes=processes,
        slots=slots,
        claim_batch=claim_batch,
        enqueue_per_s=round(count / enqueued_in),
        drain_per_s=rate(drained),
        steady_per_s=round(count / steady_in),
        claim_p50_ms=_ms(percentile(claims, 0.5)),
        claim_p99_ms=_ms(percentile(claims, 0.99)),
        enqueue_p50_ms=_ms(percentile(enqueues, 0.5)),
        enqueue_p99_ms=_ms(percentile(enqueues, 0.99)),
        pickup_p50_ms=_ms(percentile(pickups, 0.5)),
        pickup_p99_ms=_ms(percentile(pickups, 0.99)),
        lost=toll.lost,
        duplicated=toll.duplicated,
        durable=store.durability == "durable",
    )


async def _trickle(store: Store, jobs: list[NewJob], show: Show) -> list[float]:
    """Single jobs at an even rate; the seconds that each enqueue took."""
    took = []
    start = time.perf_counter()
    for number, job in enumerate(jobs):
        wait = start + number / PICKUP_RATE - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        began = time.perf_counter()
        await store.enqueue([job])
        took.append(time.perf_counter() - began)
        show("pickup", number + 1, len(jobs))
    return took


async def _pickups(store: Store, ids: set[str]) -> list[float]:
    waits: list[float] = []
    after = None
    while len(waits) < len(ids):
        page = await store.find(Filter(queue="default"), after, 1000)
        waits += [
            (job.started_at - job.enqueued_at).total_seconds()
            for job in page.jobs
            if job.id in ids and job.started_at is not None
        ]
        after = page.next
        if after is None:
            break
    return waits


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
