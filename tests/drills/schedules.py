"""Three schedulers on one store, killed and frozen around ticks; afterwards every tick of every schedule is looked for.

    python -m tests.drills.schedules --seconds 60
    python -m tests.drills.schedules --seconds 60 --store memory://
    python -m tests.drills.schedules --seconds 60 --store postgres

Without --store it takes a new SQLite file; `postgres` starts a server of its own. On memory:// the schedulers are tasks of one
process: they are cancelled at any await, and what they ask of the store is delayed, lost, repeated or refused. Prints one JSON
object; exit code 1 when a tick was fired twice, or not at all against its policy.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hawser import Job
from hawser.clock import from_datetime
from hawser.cycle import Cycle
from hawser.lab.cluster import Cluster
from hawser.store import Filter, Store
from hawser.testing.fault import Fault
from hawser.testing.faults import FaultyStore
from hawser.upkeep.scheduler import Declarer, Scheduler
from tests.drills.ticking import RULES, app

SCHEDULERS = 3
SECOND = 1_000_000


class WorkerUnit:
    """A scheduler process that is started again whenever it was killed."""

    def __init__(self, folder: Path, number: int) -> None:
        self.log = folder / f"scheduler{number}.log"
        self.thaws_at = 0.0
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            args = [sys.executable, "-m", "hawser.cli", "scheduler", "tests.drills.ticking:app"]
            self.process = subprocess.Popen(args, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self.start()

    def freeze(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.thaws_at = time.monotonic() + seconds

    def thaw(self) -> None:
        if self.thaws_at and self.thaws_at <= time.monotonic():
            self.process.send_signal(signal.SIGCONT)
            self.thaws_at = 0.0

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def around_a_tick(rng: random.Random) -> float:
    """Seconds until a moment close to the next whole second."""
    return max(0.0, 1 - time.time() % 1 + rng.uniform(-0.05, 0.15))


def trouble(units: list[WorkerUnit], rng: random.Random, seconds: float) -> Counter[str]:
    told: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(around_a_tick(rng))
        for unit in units:
            unit.thaw()
            if unit.thaws_at or rng.random() < 0.4:
                continue
            if rng.random() < 0.5:
                unit.kill()
                told["killed"] += 1
            else:
                unit.freeze(rng.uniform(0.2, 4.0))
                told["frozen"] += 1
    return told


def with_processes(url: str, rng: random.Random, seconds: float, folder: Path) -> Counter[str]:
    os.environ["HAWSER_STORE"] = url
    app.use_store(url)
    app.open()
    units = [WorkerUnit(folder, number) for number in range(SCHEDULERS)]
    try:
        while len(app.schedules.list()) < len(RULES):
            time.sleep(0.05)
        told = trouble(units, rng, seconds)
    finally:
        for unit in units:
            unit.end()
    logs = "".join(unit.log.read_text() for unit in units)
    if "Traceback" in logs:
        print(logs[logs.index("Traceback") - 500 :][:4000], file=sys.stderr)
    return told


async def in_one_process(store: Store, rng: random.Random, seconds: float) -> Counter[str]:
    chances = dict.fromkeys((Fault.DELAY, Fault.REFUSE, Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.DUPLICATE), 0.05)
    told: Counter[str] = Counter()

    def start(number: int) -> list[Cycle]:
        faulty = FaultyStore(
            store,
            seed=rng.randrange(2**32) + number,
            chances=chances,
            # Most are held up between the decision and the write, so that another comes before them.
            chances_of={"fire": {**chances, Fault.DELAY: 0.6}},
            delay=rng.uniform(0.01, 1.5),
        )
        cycles = [Cycle("scheduler", Scheduler(faulty).turn), Cycle("declarer", Declarer(faulty, app.declared()).turn)]
        for cycle in cycles:
            cycle.start()
        return cycles

    logging.getLogger("hawser.worker").setLevel(logging.ERROR)  # that the store is away is all its fault
    running = [start(number) for number in range(SCHEDULERS)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(around_a_tick(rng))
        for number in range(SCHEDULERS):
            if rng.random() < 0.6:
                for cycle in running[number]:
                    assert cycle._task is not None
                    cycle._task.cancel()
                told["killed"] += 1
                running[number] = start(number)
    for cycles in running:
        for cycle in cycles:
            await cycle.stop()
    return told


async def all_jobs(store: Store) -> list[Job]:
    found: list[Job] = []
    after = None
    while True:
        page = await store.find(Filter(task="tick"), after, 1000)
        found += page.jobs
        after = page.next
        if after is None:
            return found


async def check(store: Store) -> tuple[dict[str, Any], list[str]]:
    """Every tick between a schedule's creation and the last that was dealt with has one job, or was dropped by policy."""
    jobs = await all_jobs(store)
    made = Counter((job.schedule, from_datetime(job.tick)) for job in jobs if job.tick is not None)
    late = sorted((job.enqueued_at - job.tick).total_seconds() for job in jobs if job.tick is not None)
    wrong = [f"{name} at {tick} fired {count} times" for (name, tick), count in made.items() if count > 1]
    ticks = fired = missed = 0
    for schedule in await store.schedules():
        first = (schedule.created_us // SECOND + 1) * SECOND
        want = set(range(first, schedule.handled_us + 1, SECOND))
        got = {tick for name, tick in made if name == schedule.name}
        ticks, fired, missed = ticks + len(want), fired + len(got), missed + schedule.missed
        if not got <= want:
            wrong.append(f"{schedule.name} fired {len(got - want)} times when it had no tick")
        if schedule.name.startswith("all") and (schedule.missed or want - got):
            wrong.append(f"{schedule.name} missed {len(want - got)} ticks")
        if len(got) != schedule.fired or len(got) + schedule.missed != len(want):
            wrong.append(f"{schedule.name}: {len(want)} ticks, {len(got)} jobs, {schedule.fired} fired, {schedule.missed} missed")
    found = {
        "schedules": len(RULES),
        "ticks": ticks,
        "jobs": sum(made.values()),
        "fired_twice": sum(count - 1 for count in made.values()),
        "dropped_by_policy": missed,
        "late_p50_s": round(late[len(late) // 2], 3),
        "late_p99_s": round(late[int(len(late) * 0.99)], 3),
        "late_most_s": round(late[-1], 3),
    }
    return found, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--store")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as name:
        url = args.store or f"sqlite:///{name}/jobs.db"
        if url == "memory://":

            async def whole() -> tuple[Counter[str], tuple[dict[str, Any], list[str]]]:
                app.use_store(url)
                store = await app.store()
                return await in_one_process(store, rng, args.seconds), await check(store)

            told, (found, wrong) = asyncio.run(whole())
        else:
            with Cluster() if url == "postgres" else nullcontext() as cluster:
                told = with_processes(cluster.tcp_url if cluster else url, rng, args.seconds, Path(name))
                found, wrong = asyncio.run(_looked_at())
                app.close()
    report = {"store": url.partition(":")[0], "seed": args.seed, "schedulers": SCHEDULERS, **told, **found, "wrong": wrong[:20]}
    print(json.dumps(report, indent=2))
    return 1 if wrong else 0


async def _looked_at() -> tuple[dict[str, Any], list[str]]:
    return await check(await app.store())


if __name__ == "__main__":
    sys.exit(main())
