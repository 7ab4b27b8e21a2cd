"""What crowds that may not run cost those that may: jobs behind a shut limit, shut groups, turns, ageing, large batches.

    python benchmarks/crowds.py postgres limit
    python benchmarks/crowds.py sqlite groups

Every part works on new stores, a file or a schema each, in a folder or on a server of its own. What is compared is measured by
turns, a little of the one and a little of the other, so that a disturbance meets both. It prints JSON: what was measured, the
bars, and whether each was reached. A ratio has a range beside it: the middle 95 of 100 of what draws of its rounds give. Where
the bar lies within the range, `held` is null: it is not known, take more `--rounds`.

- `limit`: claims of others beside 1,000,000 jobs whose limit is shut, against a store without them.
- `groups`: the same beside 100,000 groups that are at their limit.
- `expired`: claims while 100,000 jobs that are past their expiry stand in front of a live one, until all of them are cancelled.
- `drain`: jobs of 100 and of 10,000 groups are drained, against jobs without a group.
- `ageing`: a stream of priority 9 that saturates, without and with a backlog of priority 0 that has aged; then one job of
  priority 0 behind the stream: how many claims it waits for, once its time is over.
- `batch`: `get_batch` of 100,000 members, some of them running.
- `snapshot`: jobs without rule, under a limit that does not bind, of 100 and of 10,000 groups pass through a queue while another
  transaction holds an old snapshot: what a claim costs in the last tenth, against the first. PostgreSQL only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from hawser.batch import new_batch
from hawser.job import Claimed, NewJob
from hawser.lab.cluster import Cluster
from hawser.lab.store_under_test import SERVER_SETTINGS, WARM, address, connected
from hawser.limit import Limit
from hawser.outcome import Done
from hawser.policy import QueuePolicy
from hawser.store import Actor, Settlement, Share, Store, Target
from hawser.stores import make_store

QUEUE = "default"
FILL = 5_000
LEASE = 3_600.0
BY = Actor("benchmark")


class Bar(NamedTuple):
    """A figure must be at least, or at most, so much."""

    figure: str
    most: float | None = None
    least: float | None = None

    def holds(self, figures: dict[str, Any]) -> bool | None:
        """None: the range of the figure reaches over the bar."""
        low, high = figures.get(f"{self.figure}_range", (figures[self.figure], figures[self.figure]))
        found = {
            (self.most is None or value <= self.most) and (self.least is None or value >= self.least) for value in (low, high)
        }
        return found.pop() if len(found) == 1 else None


def job(task: str = "plain", **fields: Any) -> NewJob:
    return NewJob(task=task, queue=fields.pop("queue", QUEUE), body=b"{}", **fields)


async def fill(store: Store, jobs: Sequence[NewJob]) -> None:
    for n in range(0, len(jobs), FILL):
        await store.enqueue(jobs[n : n + FILL])


async def settle(store: Store, runs: Sequence[Claimed]) -> None:
    await store.settle([Settlement(run.id, run.lease, Done(), keep=False, hint=run.hint) for run in runs])


async def claim(store: Store, limit: int, queue: str = QUEUE) -> list[Claimed]:
    return await store.claim([Share(queue)], limit, "benchmark", LEASE)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_ms": round(1_000 * ordered[len(ordered) // 2], 4),
        "p99_ms": round(1_000 * ordered[int(0.99 * (len(ordered) - 1))], 4),
        "mean_ms": round(1_000 * statistics.fmean(ordered), 4),
        "claims": len(ordered),
    }


async def by_turns(alone: Store, beside: Store, rounds: int, others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Claims of ten jobs in each store, a hundred jobs in the one, then a hundred in the other."""
    times: dict[int, list[list[float]]] = {0: [], 1: []}
    order = [(0, alone), (1, beside)]
    for turn in range(-5, rounds):
        for which, store in order if turn % 2 else reversed(order):
            await store.enqueue([job("other", **others[n % len(others)]) for n in range(100)])
            left, took_each = 100, []
            while left:
                began = time.perf_counter()
                runs = await claim(store, 10)
                took = time.perf_counter() - began
                assert len(runs) == 10
                assert all(run.task == "other" for run in runs)
                took_each.append(took)
                left -= len(runs)
                await settle(store, runs)
            if turn >= 0:
                times[which].append(took_each)
    without, with_ = (spread([took for each in times[which] for took in each]) for which in (0, 1))
    return {"alone": without, "beside": with_, "rounds": rounds, **ratios(times[0], times[1])}


FIGURES = ("p50", "mean", "p99")
DRAWS = 400


def ratios(alone: Sequence[Sequence[float]], beside: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Those of the claims of all rounds; and the range of those of as many rounds that are drawn from these, both sides of a
    round together, for what disturbs the one disturbs the other."""
    chance, rounds = random.Random(1), range(len(alone))
    drawn: dict[str, list[float]] = {name: [] for name in FIGURES}
    for draw in range(DRAWS + 1):
        these = rounds if draw == 0 else chance.choices(rounds, k=len(rounds))
        without, with_ = (spread([took for each in these for took in side[each]]) for side in (alone, beside))
        for name in FIGURES:
            drawn[name].append(with_[f"{name}_ms"] / without[f"{name}_ms"])
    found: dict[str, Any] = {}
    for name, values in drawn.items():
        ordered = sorted(values[1:])
        found[f"{name}_ratio"] = round(values[0], 3)
        found[f"{name}_ratio_range"] = [round(ordered[int(share * (DRAWS - 1))], 3) for share in (0.025, 0.975)]
    return found


async def limit_part(stores: Stores, crowd: int, rounds: int) -> tuple[dict[str, Any], list[Bar]]:
    async with stores.two() as (alone, beside):
        for store, count in ((alone, 1), (beside, crowd)):
            await store.set_limit(Target("task", "shut"), Limit(running=1), BY)
            await fill(store, [job("shut") for _ in range(count)])
            assert len(await claim(store, 10)) == 1
        figures = await by_turns(alone, beside, rounds, [{}])
    return {"crowd": crowd, **figures}, [Bar("p50_ratio", most=1.02), Bar("p99_ratio", most=1.02)]


async def groups_part(stores: Stores, crowd: int, rounds: int) -> tuple[dict[str, Any], list[Bar]]:
    async with stores.two() as (alone, beside):
        for store, count in ((alone, 1), (beside, crowd)):
            await store.set_limit(Target("task", "shut"), Limit(running=1, per_group=True), BY)
            await fill(store, [job("shut", group=f"g{n}") for n in range(count) for _ in range(2)])
            running = 0
            while runs := await claim(store, 1_000):
                running += len(runs)
            assert running == count, f"{running} of {count} groups have a run"
        figures = await by_turns(alone, beside, rounds, [{"group": f"open{n}"} for n in range(50)])
    return {"crowd": crowd, **figures}, [Bar("p50_ratio", most=1.05), Bar("p99_ratio", most=1.05)]


EXPIRES = 0.5
"""Seconds. Before that many jobs are all there, the first of them are past it."""

CLAIMS_AT_MOST = 5_000
"""Of one round of `expired`: so many do not cancel the crowd only if no claim does."""


async def expired_part(stores: Stores, crowd: int, rounds: int) -> tuple[dict[str, Any], list[Bar]]:
    until_live, first, others, until_gone = [], [], [], []
    for _ in range(rounds):
        async with stores.one() as store:
            await fill(store, [job("late", priority=9, expires=EXPIRES) for _ in range(crowd)])
            await store.enqueue([job("live")])
            await asyncio.sleep(EXPIRES)
            claims, began, runs = 0, time.perf_counter(), []
            while not runs:
                runs, claims = await claim(store, 10), claims + 1
            first.append(time.perf_counter() - began)
            until_live.append(claims)
            assert [run.task for run in runs] == ["live"]
            while (await store.stats(QUEUE)).cancelled < crowd:
                assert claims < CLAIMS_AT_MOST, "the crowd is still there"
                await store.enqueue([job("live") for _ in range(10)])
                began = time.perf_counter()
                runs = await claim(store, 10)
                others.append(time.perf_counter() - began)
                claims += 1
                assert [run.task for run in runs] == ["live"] * 10
                await settle(store, runs)
            until_gone.append(claims)
    figures = {
        "claims_until_the_live_one": max(until_live),
        "that_took_ms": [round(1_000 * took, 1) for took in first],
        "claims_until_all_are_cancelled": until_gone,
        "claims_meanwhile": spread(others) if others else None,
    }
    return {"crowd": crowd, **figures}, [Bar("claims_until_the_live_one", most=1)]


async def drain_part(stores: Stores, jobs: int, rounds: int) -> tuple[dict[str, Any], list[Bar]]:
    """Each queue is emptied by a few claims, then the next one, until all are empty: a disturbance meets all of them."""
    kinds = {"plain": 0, "groups_100": 100, "groups_10000": 10_000}
    spent: dict[str, list[Spent]] = {kind: [] for kind in kinds}
    async with stores.one() as store:
        for turn in range(-1, rounds):
            cpu = {kind: Cpu(store) for kind in kinds}
            for kind, groups in kinds.items():
                made = [job(queue=kind, group=f"g{n % groups}" if groups else None) for n in range(jobs)]
                async with cpu[kind].of("enqueue"):
                    await fill(store, made)
            for _ in range(0, jobs, AT_ONCE * CLAIMS_BY_TURNS):
                for kind in kinds:
                    await drain_some(store, kind, cpu[kind])
            if turn >= 0:
                for kind in kinds:
                    spent[kind].append(cpu[kind].spent)
    figures: dict[str, Any] = {}
    for kind, each in spent.items():
        for part in PARTS_OF_A_JOB:
            figures[f"{kind}_{part}_us"] = round(1e6 * statistics.median(one[part] for one in each) / jobs, 1)
    for kind in ("groups_100", "groups_10000"):
        shares = [_drained(plain) / _drained(one) for one, plain in zip(spent[kind], spent["plain"], strict=True)]
        figures[f"{kind}_share"] = round(statistics.median(shares), 3)
        figures[f"{kind}_share_range"] = [round(min(shares), 3), round(max(shares), 3)]
    bars = [Bar("groups_100_share", least=0.8), Bar("groups_10000_share", least=0.5)]
    return {"jobs": jobs, "rounds": rounds, **figures}, bars


async def drain_some(store: Store, queue: str, cpu: Cpu) -> None:
    for _ in range(CLAIMS_BY_TURNS):
        async with cpu.of("claim"):
            runs = await claim(store, AT_ONCE, queue)
        assert len(runs) == AT_ONCE
        async with cpu.of("settle"):
            await settle(store, runs)


AT_ONCE = 200
CLAIMS_BY_TURNS = 10
PARTS_OF_A_JOB = ("enqueue", "claim", "settle")
Spent = dict[str, float]
"""Seconds of CPU, of this process and of its sessions, by part."""


def _drained(spent: Spent) -> float:
    return spent["claim"] + spent["settle"]


class Cpu:
    """What the parts of a job cost."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.spent: Spent = dict.fromkeys(PARTS_OF_A_JOB, 0.0)

    @asynccontextmanager
    async def of(self, part: str) -> AsyncIterator[None]:
        sessions = await self._sessions()
        own = time.process_time()
        yield
        own = time.process_time() - own
        ended = await self._sessions()
        self.spent[part] += own + sum(cpu - sessions.get(pid, 0.0) for pid, cpu in ended.items())

    async def _sessions(self) -> dict[int, float]:
        """The CPU that each session of the server has had; not the one that is asked."""
        if not hasattr(self._store, "server"):
            return {}
        asked = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        rows = await self._store.server.connection("read").rows(asked)
        found: dict[int, float] = {}
        for row in rows:
            with suppress(FileNotFoundError):  # it has just ended
                found[row[0]] = cpu_of(row[0])
        return found


async def ageing_part(stores: Stores, crowd: int, rounds: int) -> tuple[dict[str, Any], list[Bar]]:
    old = datetime.now(UTC) - timedelta(seconds=900)
    rates: dict[int, list[float]] = {0: [], 1: []}
    async with stores.two() as (alone, beside):
        await fill(beside, [job(priority=0, run_at=old) for _ in range(crowd)])
        low = 0
        for turn in range(-1, rounds):
            for which, store in enumerate((alone, beside)):
                await fill(store, [job(priority=9) for _ in range(5_000)])
                began, urgent = time.perf_counter(), 0
                for _ in range(400):
                    runs = await claim(store, 10)
                    urgent += sum(run.priority == 9 for run in runs)
                    low += sum(run.priority == 0 for run in runs) if which else 0
                    await settle(store, runs)
                if turn >= 0:
                    rates[which].append(urgent / (time.perf_counter() - began))
                await drained(store, 9)
        waited = await claims_behind_a_stream(alone)
    shares = [with_ / without for without, with_ in zip(rates[0], rates[1], strict=True)]
    figures = {
        "stream_per_s_alone": round(statistics.median(rates[0])),
        "stream_per_s_beside_what_has_aged": round(statistics.median(rates[1])),
        "stream_share": round(statistics.median(shares), 3),
        "low_priority_done": low,
        "claims_after_its_ageing": waited,
    }
    bars = [Bar("stream_share", least=0.88), Bar("claims_after_its_ageing", most=10)]
    return {"crowd": crowd, "rounds": rounds, **figures}, bars


async def drained(store: Store, priority: int) -> None:
    """Take what is left of a stream."""
    found = True
    while found:
        runs = await claim(store, 200)
        found = any(run.priority == priority for run in runs)
        await settle(store, runs)


async def claims_behind_a_stream(store: Store) -> int:
    """Claims of one job each until a job of priority 0 starts, from when its queue's ageing of a second is over."""
    await store.set_policy(QUEUE, QueuePolicy(ageing=1), BY)
    await fill(store, [job(priority=9) for _ in range(200)])
    await store.enqueue([job(priority=0)])
    over = time.perf_counter() + 1.0
    waited = 0
    while True:
        runs = await claim(store, 1)
        waited += time.perf_counter() > over
        await settle(store, runs)
        await store.enqueue([job(priority=9)])
        if runs[0].priority == 0:
            return waited


async def batch_part(stores: Stores, crowd: int, rounds: int) -> tuple[dict[str, Any], list[Bar]]:
    async with stores.one() as store:
        batch = new_batch(name="large", then=job("then"))
        await store.open_batch(batch)
        for _ in range(0, crowd, 1_000):
            await store.enqueue([job(batch=batch.id) for _ in range(1_000)])
        await store.close_batch(batch.id)
        done = await claim(store, 1_000)
        await settle(store, done)
        runs = await claim(store, 1_000)
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            found = await store.batch(batch.id)
            times.append(time.perf_counter() - began)
            assert found is not None
            assert (found.total, found.done, found.running) == (crowd, len(done), len(runs))
    return {"crowd": crowd, **spread(times)}, [Bar("p99_ms", most=20)]


SNAPSHOT_KINDS: dict[str, int | None] = {"plain": None, "limit": None, "groups_100": 100, "groups_10000": 10_000}
"""What jobs pass, and of how many groups."""

WAITING = 10_000
"""Jobs that wait at every moment: with 10,000 groups each has one."""


async def snapshot_part(stores: Stores, crowd: int, rounds: int) -> tuple[dict[str, Any], list[Bar]]:
    """`rounds` is not used: every tenth of the crowd is one."""
    figures: dict[str, Any] = {}
    for kind, groups in SNAPSHOT_KINDS.items():
        async with stores.one() as store:
            if kind == "limit":
                await store.set_limit(Target("task", "plain"), Limit(running=1_000_000), BY)
            passing = Passing(store, groups)
            await passing.add(WAITING)
            await passing.go_on(2_000)
            async with held_snapshot(stores.last):
                tenths = [await passing.go_on(crowd // 10) for _ in range(10)]
        figures[kind] = {"tenths": tenths}
        for name in ("cpu_us_per_job", "p50_ms"):
            first, last = tenths[0][name], tenths[-1][name]
            figures[f"{kind}_{name}_ratio"] = round(last / first, 3)
    return {"jobs": crowd, **figures}, [Bar(f"{kind}_cpu_us_per_job_ratio", most=1.2) for kind in SNAPSHOT_KINDS]


class Passing:
    """Jobs that come, run and end; as many wait at the end of a step as before it."""

    def __init__(self, store: Any, groups: int | None) -> None:
        self._store = store
        self._groups = groups
        self._made = 0

    async def add(self, count: int) -> None:
        begin, self._made = self._made, self._made + count
        groups = self._groups
        await fill(self._store, [job(group=f"g{n % groups}" if groups else None) for n in range(begin, begin + count)])

    async def go_on(self, jobs: int) -> dict[str, Any]:
        """What claims cost while so many jobs pass, the server's part of the CPU and this process's."""
        pid = await self._store.server.connection("claim").value("select pg_backend_pid()")
        times, cpu, left = [], 0.0, jobs
        while left:
            await self.add(200)
            own, server, began = time.process_time(), cpu_of(pid), time.perf_counter()
            runs = await claim(self._store, 200)
            times.append(time.perf_counter() - began)
            cpu += time.process_time() - own + cpu_of(pid) - server
            assert len(runs) == 200
            left -= len(runs)
            await settle(self._store, runs)
        return {"cpu_us_per_job": round(cpu / jobs * 1e6, 1), **spread(times)}


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has had."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@asynccontextmanager
async def held_snapshot(url: str) -> AsyncIterator[None]:
    """Another client reads once, and does not end its transaction."""
    async with connected(url) as con:
        await con.execute(f"set search_path to {address(url).schema}")
        await con.execute("begin isolation level repeatable read; select 1 from job limit 1")
        yield


class Stores:
    """New stores of one kind, one after the other."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._made = 0
        self.last = ""
        """The URL of the one that was made last."""

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Store]:
        self._made += 1
        sign = "&" if "?" in self._base else "?"
        own = self._base.startswith("sqlite")
        self.last = f"{self._base}/{self._made}.db" if own else f"{self._base}{sign}schema=crowd_{self._made}"
        store = make_store(self.last)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def two(self) -> AsyncIterator[tuple[Store, Store]]:
        async with self.one() as first, self.one() as second:
            yield first, second


PARTS = {
    "limit": (limit_part, 1_000_000, 3_000),
    "groups": (groups_part, 100_000, 3_000),
    "expired": (expired_part, 100_000, 3),
    "drain": (drain_part, 20_000, 5),
    "ageing": (ageing_part, 100_000, 7),
    "batch": (batch_part, 100_000, 300),
    "snapshot": (snapshot_part, 1_000_000, 1),
}
"""What each does, the size of its crowd, and how often it is measured."""


@contextmanager
def served(kind: str) -> Iterator[str]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="hawser-crowds-") as folder:
            yield f"sqlite:///{folder}"
    else:
        with Cluster(settings=SERVER_SETTINGS) as cluster:
            cluster.warm(WARM)
            yield cluster.url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", choices=["sqlite", "postgres"])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--crowd", type=int, help="jobs, groups or members; of `snapshot` a multiple of 2,000")
    parser.add_argument("--rounds", type=int)
    given = parser.parse_args()
    if (given.part, given.store) == ("snapshot", "sqlite"):
        parser.error("`snapshot` is about old versions of rows, which SQLite does not keep; measure it on postgres")
    part, crowd, rounds = PARTS[given.part]
    with served(given.store) as base:
        figures, bars = asyncio.run(part(Stores(base), given.crowd or crowd, given.rounds or rounds))
    judged = [{**bar._asdict(), "held": bar.holds(figures)} for bar in bars]
    print(json.dumps({"store": given.store, "part": given.part, **figures, "bars": judged}, indent=2))


if __name__ == "__main__":
    main()
