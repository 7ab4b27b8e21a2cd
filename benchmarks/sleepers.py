"""What jobs that sleep or wait cost those that run: claims and stats beside them, and how late they wake.

    python benchmarks/sleepers.py sqlite:////tmp/sleepers.db sqlite:////tmp/empty.db
    python benchmarks/sleepers.py 'postgresql://…?schema=sleepers' 'postgresql://…?schema=empty' --part measure
    python benchmarks/sleepers.py postgres

Two stores: one is filled with sleepers, one stays all but empty. `postgres` starts a server of its own, with both on it. All
parts, one after the other, or the one that `--part` names, so that the slow first one can be done before a machine is made quiet:

`fill` adds the sleepers as `ctx.sleep` does: each job is claimed, records its sleep of 30 days as a step, and is settled as
snoozed. Some of them, `--held`, wait instead, for an event of their own with a time-out of 30 days, as after `ctx.wait_for`. The
other store gets one of each, so that both have the same lanes.
`measure` times single calls on both stores by turns: enqueue, claim and settle of one job, claims that find nothing, stats.
`wake` has jobs beside the sleepers whose sleep ends evenly, so many a second (`--rates`), for `--seconds`. They are claimed by 2
loops of up to 500 at a time, which load their steps and end them. Told is the time from the end of the sleep to the answer of
the claim. `--rates 5000 --seconds 200` wakes a whole million.
`timeouts` has the same number of waits whose time ends evenly, beside a reclaimer that looks once in half a second to a second,
as that of a worker does.
`moment` has `--wake` jobs that sleep until one moment, and for each of `--crowds` one event that so many wait for, from its emit
to the last being ready; meanwhile other jobs are enqueued, and it is told for how long they had to wait.

The clock of a store stands while sleepers are added, so that all of a part end when they are to, however long that takes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from hawser.job import Claimed, NewJob
from hawser.lab.cluster import Cluster
from hawser.outcome import Done, Held, Snoozed
from hawser.store import NewStep, Settlement, Share, Store
from hawser.stores import make_store
from hawser.value.ids import new_id

QUEUE = [Share("default")]
BATCH = 1_000
AT_ONCE = 500
MONTH = 30 * 86_400.0
LEAD = 3.0
"""Seconds between the last sleeper and the first wake."""


class StandingClock:
    """The machine's clock, which can be made to stand for a while."""

    def __init__(self) -> None:
        self._behind = 0
        self._stands: int | None = None

    def now(self) -> int:
        return (time.time_ns() // 1_000 - self._behind) if self._stands is None else self._stands

    @contextmanager
    def standing(self) -> Iterator[None]:
        self._stands = stood = self.now()
        try:
            yield
        finally:
            self._behind = time.time_ns() // 1_000 - stood
            self._stands = None


CLOCK = StandingClock()


class Both(NamedTuple):
    """The store with the sleepers, and the one without."""

    full: Store
    empty: Store


def job(task: str = "plain") -> NewJob:
    return NewJob(id=new_id(), task=task, queue="default", body=b"{}")


def told(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    first, half, most, worst = (ordered[int(part * (len(ordered) - 1))] * 1_000 for part in (0, 0.5, 0.99, 1))
    print(f"  {name}: first {first:.2f} ms, p50 {half:.2f} ms, p99 {most:.2f} ms, worst {worst:.2f} ms, n={len(ordered)}")


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def measure(both: Both, rounds: int) -> None:
    """One job at a time, so that each figure is that of one call; the stores take turns, so that both have the same machine."""
    times: dict[str, dict[str, list[float]]] = {"empty": {}, "full": {}}
    for n in range(rounds):
        for name in ("empty", "full") if n % 2 else ("full", "empty"):
            await one_round(getattr(both, name), times[name], with_stats=n % 5 == 0)
        if n % 50 == 0:
            for store in both:
                await store.reclaim(100)
    for what in times["full"]:
        for name, each in times.items():
            told(f"{what}, {name}", each[what])


async def one_round(store: Store, times: dict[str, list[float]], *, with_stats: bool) -> None:
    def note(what: str, seconds: float) -> None:
        times.setdefault(what, []).append(seconds)

    note("enqueue", await timed(lambda: store.enqueue([job()])))
    began = time.perf_counter()
    [run] = await store.claim(QUEUE, 1, "bench", 60)
    note("claim", time.perf_counter() - began)
    note("settle", await timed(lambda: store.settle([Settlement(run.id, run.lease, Done(), keep=False, hint=run.hint)])))
    note("claim of nothing", await timed(lambda: store.claim(QUEUE, 100, "bench", 60)))
    if with_stats:
        note("stats", await timed(lambda: store.stats(None)))


async def fill(store: Store, count: int, held: int) -> None:
    began = time.perf_counter()
    await sleep_all(store, [MONTH] * (count - held))
    print(f"{count - held:,} jobs sleep, after {time.perf_counter() - began:.0f} s")
    began = time.perf_counter()
    await hold_all(store, held)
    print(f"{held:,} jobs wait for an event, after {time.perf_counter() - began:.0f} s")


async def started(store: Store, count: int, task: str) -> AsyncIterator[list[Claimed]]:
    """Runs of so many new jobs, some at a time."""
    for start in range(0, count, BATCH):
        some = min(BATCH, count - start)
        await store.enqueue([job(task) for _ in range(some)])
        runs: list[Claimed] = []
        while len(runs) < some:
            runs += await store.claim(QUEUE, some - len(runs), "bench", 60)
        yield runs
        if not start % (10 * BATCH):
            await store.reclaim(100)  # as every worker does each second; it also adds up what was counted


async def sleep_all(store: Store, lasts: Sequence[float]) -> None:
    """Jobs that sleep for so long."""
    added = 0
    async for runs in started(store, len(lasts), "sleeper"):
        each = lasts[added : added + len(runs)]
        steps = [
            NewStep(id=run.id, lease=run.lease, name="cool-off", value=b"null", kind="sleep", lasts=lasting)
            for run, lasting in zip(runs, each, strict=True)
        ]
        kept = await store.record_steps(steps)
        ends = [Snoozed(step.left, "sleeps: cool-off") for step in kept if step is not None]
        await store.settle([Settlement(run.id, run.lease, end, hint=run.hint) for run, end in zip(runs, ends, strict=True)])
        added += len(runs)


async def hold_all(store: Store, count: int, event: str | None = None, lasts: Sequence[float] | None = None) -> list[str]:
    """Jobs that wait for one event, or for one each."""
    held: list[str] = []
    async for runs in started(store, count, "waiter"):
        each = [MONTH] * len(runs) if lasts is None else lasts[len(held) : len(held) + len(runs)]
        holds = [
            Held(name := event or f"packed:{run.id}", event=name, timeout=lasting)
            for run, lasting in zip(runs, each, strict=True)
        ]
        await store.settle([Settlement(run.id, run.lease, hold, hint=run.hint) for run, hold in zip(runs, holds, strict=True)])
        held += [run.id for run in runs]
    return held


async def wake_evenly(store: Store, rate: int, seconds: int) -> None:
    """So many sleeps end each second."""
    count = rate * seconds
    with CLOCK.standing():
        first = CLOCK.now() / 1e6 + LEAD
        await sleep_all(store, [LEAD + n / rate for n in range(count)])
    late = await claimed(store, count)
    last = CLOCK.now() / 1e6 - first - seconds
    print(f"{rate:,} sleeps a second ended for {seconds} s, the last was claimed {last:+.2f} s behind:")
    told("end to claimed", late)


async def time_out_evenly(store: Store, rate: int, seconds: int) -> None:
    """The time of so many waits ends each second."""
    count = rate * seconds
    with CLOCK.standing():
        first = CLOCK.now() / 1e6 + LEAD
        ids = await hold_all(store, count, lasts=[LEAD + n / rate for n in range(count)])
    ends = {id: first + n / rate for n, id in enumerate(ids)}
    async with reclaiming(store):
        late = await claimed(store, count, ends)
    last = CLOCK.now() / 1e6 - first - seconds
    print(f"the time of {rate:,} waits a second ended for {seconds} s, the last was claimed {last:+.2f} s behind:")
    told("end to claimed", late)


@asynccontextmanager
async def reclaiming(store: Store) -> AsyncIterator[None]:
    """Beside a reclaimer."""
    took: list[float] = []

    async def look() -> None:
        while True:
            took.append(await timed(lambda: store.reclaim(500)))
            await asyncio.sleep(random.uniform(0.5, 1.0))

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        told("reclaim", took)


async def wake_at_once(store: Store, count: int) -> None:
    """They sleep until one moment."""
    with CLOCK.standing():
        due = CLOCK.now() / 1e6 + LEAD
        await sleep_all(store, [LEAD] * count)
    late = await claimed(store, count)
    print(f"{count:,} that slept until one moment, all claimed {CLOCK.now() / 1e6 - due:.1f} s behind it:")
    told("end to claimed", late)


async def claimed(store: Store, count: int, ends: dict[str, float] | None = None) -> list[float]:
    """Seconds from the time of each, which is its due time unless `ends` has it, until its claim was answered."""
    late: list[float] = []

    async def loop(name: str) -> None:
        while len(late) < count:
            runs = await store.claim(QUEUE, AT_ONCE, name, 60)
            now = CLOCK.now() / 1e6
            late.extend(now - (run.run_at_us / 1e6 if ends is None else ends[run.id]) for run in runs)
            if runs:
                await store.steps(runs[0].id)
                await store.settle([Settlement(run.id, run.lease, Done(), keep=False, hint=run.hint) for run in runs])
            else:
                await store.wait(["default"], 0.05)

    await asyncio.gather(loop("a"), loop("b"))
    return late


async def emit(store: Store, count: int) -> None:
    """One event for all of them, beside others who write."""
    event = f"opened:{new_id()}"
    await hold_all(store, count, event)
    waited: list[float] = []
    answered = asyncio.Event()
    writing = asyncio.create_task(enqueue_until(answered, store, waited))
    await asyncio.sleep(0.2)
    began = time.perf_counter()
    await store.emit(event, b"1", 60.0)
    took = time.perf_counter() - began
    answered.set()
    await writing
    print(f"one event for {count:,} jobs: all ready {took * 1_000:.0f} ms behind the call:")
    told("an enqueue meanwhile", waited)
    await claimed(store, count + len(waited))


async def enqueue_until(answered: asyncio.Event, store: Store, waited: list[float]) -> None:
    while not answered.is_set():
        waited.append(await timed(lambda: store.enqueue([job()])))


async def main(urls: list[str], args: argparse.Namespace) -> None:
    both = Both(*(make_store(url, clock=CLOCK) for url in urls))
    for store in both:
        await store.open()
    if args.part in ("fill", None):
        await fill(both.empty, 2, 1)
        await fill(both.full, args.sleepers, args.held)
    if args.part in ("measure", None):
        await measure(both, args.rounds)
    for rate in args.rates:
        if args.part in ("wake", None):
            await wake_evenly(both.full, rate, args.seconds)
        if args.part in ("timeouts", None):
            await time_out_evenly(both.full, rate, args.seconds)
    if args.part in ("moment", None):
        await wake_at_once(both.full, args.wake)
        for crowd in args.crowds:
            await emit(both.full, crowd)
    for store in both:
        await store.close()


@contextmanager
def served(given: list[str]) -> Iterator[list[str]]:
    if given != ["postgres"]:
        yield given
        return
    with Cluster() as cluster:
        yield [f"{cluster.url}{'&' if '?' in cluster.url else '?'}schema={name}" for name in ("sleepers", "empty")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", help="that of the sleepers and an empty one, or the word postgres")
    parser.add_argument("--part", choices=["fill", "measure", "wake", "timeouts", "moment"])
    parser.add_argument("--sleepers", type=int, default=1_000_000)
    parser.add_argument("--held", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--rates", type=int, nargs="+", default=[5_000])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--wake", type=int, default=10_000)
    parser.add_argument("--crowds", type=int, nargs="+", default=[1_000, 10_000, 30_000])
    parsed = parser.parse_args()
    with served(parsed.stores) as addresses:
        asyncio.run(main(addresses, parsed))
