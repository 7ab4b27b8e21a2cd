"""What jobs that sleep or wait cost those that run: claims and stats beside them, and how late they wake.

    python benchmarks/sleepers.py sqlite:////tmp/sleepers.db --sleepers 1000000
    python benchmarks/sleepers.py postgres --sleepers 1000000

On an empty store, then beside the sleepers, it measures: enqueue, claim and settle of single jobs, claims that find nothing,
stats. Most sleepers are due in 30 days, as after `ctx.sleep`. Some of them, `--held`, are held for an event of their own, as
after `ctx.wait_for`. Then `--wake` jobs, which sleep until one moment, are claimed by 2 loops of up to 100 at a time: told is the
time from their due time to the answer of the claim. At the end one event wakes a tenth as many, from its emit to the last being
ready.
`postgres` starts a server of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from hawser.ids import new_id
from hawser.job import NewJob
from hawser.lab.cluster import Cluster
from hawser.outcome import Done, Held
from hawser.store import Settlement, Share, Store
from hawser.stores import make_store

QUEUE = [Share("default")]
BATCH = 5_000
MONTH = 30 * 86_400.0


def job(task: str = "plain", delay: float = 0.0) -> NewJob:
    return NewJob(id=new_id(), task=task, queue="default", body=b"{}", delay=delay)


def told(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    first, half, most, worst = (ordered[int(part * (len(ordered) - 1))] * 1_000 for part in (0, 0.5, 0.99, 1))
    print(f"  {name}: first {first:.2f} ms, p50 {half:.2f} ms, p99 {most:.2f} ms, worst {worst:.2f} ms, n={len(ordered)}")


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def measure(store: Store, rounds: int) -> None:
    """One job at a time, so that each figure is that of one call."""
    times: dict[str, list[float]] = {"enqueue": [], "claim": [], "settle": [], "claim of nothing": [], "stats": []}
    for n in range(rounds):
        new = job()
        times["enqueue"].append(await timed(lambda new=new: store.enqueue([new])))  # type: ignore[misc]
        began = time.perf_counter()
        [run] = await store.claim(QUEUE, 1, "bench", 60)
        times["claim"].append(time.perf_counter() - began)
        end = Settlement(run.id, run.lease, Done(), keep=False, hint=run.hint)
        times["settle"].append(await timed(lambda end=end: store.settle([end])))  # type: ignore[misc]
        times["claim of nothing"].append(await timed(lambda: store.claim(QUEUE, 100, "bench", 60)))
        if n % 20 == 0:
            times["stats"].append(await timed(lambda: store.stats(None)))
    for name, seconds in times.items():
        told(name, seconds)


async def sleep_all(store: Store, count: int) -> None:
    began = time.perf_counter()
    for _ in range(0, count, BATCH):
        await store.enqueue([job("sleeper", MONTH) for _ in range(BATCH)])
    print(f"{count:,} sleepers were added in {time.perf_counter() - began:.0f} s")


async def hold_all(store: Store, count: int, event: str | None = None) -> None:
    began = time.perf_counter()
    for _ in range(0, count, 1_000):
        await store.enqueue([job("waiter") for _ in range(min(1_000, count))])
        runs = await store.claim(QUEUE, 1_000, "bench", 60)
        holds = [Held(name := event or f"packed:{run.id}", event=name, timeout=MONTH) for run in runs]
        await store.settle([Settlement(run.id, run.lease, hold) for run, hold in zip(runs, holds, strict=True)])
    print(f"{count:,} jobs wait for an event, after {time.perf_counter() - began:.0f} s")


async def wake(store: Store, count: int) -> None:
    """Due at one moment."""
    for _ in range(0, count, BATCH):
        await store.enqueue([job("riser", 5.0) for _ in range(min(BATCH, count))])
    due = time.time() + 5.0
    late: list[float] = []

    async def loop(name: str) -> None:
        while len(late) < count:
            runs = await store.claim(QUEUE, 100, name, 60)
            now = time.time()
            late.extend(now - run.run_at_us / 1e6 for run in runs)
            if runs:
                await store.settle([Settlement(run.id, run.lease, Done(), keep=False, hint=run.hint) for run in runs])
            else:
                await store.wait(["default"], 0.5)

    await asyncio.gather(loop("a"), loop("b"))
    print(f"{count:,} that slept until one moment, all claimed {time.time() - due:.1f} s behind it:")
    told("due to claimed", late)


async def emit(store: Store, count: int) -> None:
    await hold_all(store, count, "opened")
    began = time.perf_counter()
    await store.emit("opened", b"1", 60.0)
    answered = time.perf_counter() - began
    while (await store.stats(None)).due < count:
        await asyncio.sleep(0.01)
    print(
        f"one event for {count:,} jobs: emit {answered * 1_000:.0f} ms, all ready {(time.perf_counter() - began) * 1_000:.0f} ms"
    )


async def main(url: str, args: argparse.Namespace) -> None:
    store = make_store(url)
    await store.open()
    print("an empty store:")
    await measure(store, args.rounds)
    await sleep_all(store, args.sleepers - args.held)
    await hold_all(store, args.held)
    print(f"beside {args.sleepers:,} sleepers:")
    await measure(store, args.rounds)
    await wake(store, args.wake)
    await emit(store, args.wake // 10)
    await store.close()


@contextmanager
def served(where: str) -> Iterator[str]:
    if where != "postgres":
        yield where
        return
    with Cluster() as cluster:
        yield cluster.url


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--sleepers", type=int, default=1_000_000)
    parser.add_argument("--held", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--wake", type=int, default=10_000)
    given = parser.parse_args()
    with served(given.store) as address:
        asyncio.run(main(address, given))
