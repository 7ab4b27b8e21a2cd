"""Ten thousand schedules that are all due at the same instants: how late they fire, and what a tick costs.

    python benchmarks/schedules.py memory://
    python benchmarks/schedules.py sqlite:////tmp/schedules.db --schedulers 3
    python benchmarks/schedules.py postgres

`postgres` starts a server of its own, any other word is a URL. Half of the schedules are intervals, half cron expressions in
three zones. The schedulers are tasks of this process, so its CPU is theirs and, on memory and SQLite, the store's; that of a
server of its own is told apart. Prints one JSON object: lateness is from a tick to its job's being in the store, by the store's
clock; calls are those of the seam, statements what they came to in SQL where that can be counted.
"""

import argparse
import asyncio
import json
import os
import time
from collections import Counter
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hawser.cycle import Cycle
from hawser.lab.cluster import Cluster
from hawser.schedule.rule import Cron, Every, text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import Filter
from hawser.stores import make_store
from hawser.testing.faults import FaultyStore
from hawser.upkeep.scheduler import Scheduler
from hawser.worker.loop import run_loop

STEP = 500


def rule(number, every, *, distinct):
    """All have their ticks at the same instants; distinct ones are written differently, so that none is known from another."""
    start = datetime(2001, 1, 1, tzinfo=UTC) + timedelta(seconds=number * every) if distinct else None
    if number % 2:
        return text_of(Every(seconds=every, start=start))
    tz = ("UTC", "Europe/Berlin", "America/New_York")[number // 2 % 3]
    return text_of(Cron(f"*/{every} * * * * *", tz=tz, start=start))


def counted(store):
    """Counts the statements of a SQLite or PostgreSQL store, from its next connections on."""
    seen = Counter()
    for con in getattr(getattr(store, "_open", None), "_cons", ()):
        con.set_trace_callback(lambda text: seen.update([text.split(None, 1)[0].lower()]))
    if hasattr(store, "server"):
        dial = store.server.dial

        async def watched():
            con = await dial()
            con.add_query_logger(lambda said: seen.update([said.query.split(None, 1)[0].lower()]))
            return con

        store.server.dial = watched
    return seen


def cpu_of(cluster):
    """Seconds of CPU of a server and its processes."""
    if cluster is None:
        return 0.0
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, fields = int(path.parent.name), path.read_text().rpartition(")")[2].split()
            if pid == cluster.pid:
                ticks += sum(map(int, fields[11:15]))
            elif int(fields[1]) == cluster.pid:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def measure(args, url, cluster):
    store = make_store(url)
    statements = counted(store)
    await store.open()
    statements = statements if hasattr(store, "server") else counted(store)
    now = (await store.due_schedules(0)).now
    for start in range(0, args.schedules, STEP):
        numbers = range(start, min(start + STEP, args.schedules))
        definitions = [
            Definition(name=f"s{n}", rule_text=rule(n, args.every, distinct=args.distinct), task="work") for n in numbers
        ]
        await store.fire([create(definition, now) for definition in definitions])
    watched = [FaultyStore(store) for _ in range(args.schedulers)]
    cycles = [Cycle("scheduler", Scheduler(each).turn) for each in watched]
    # From the middle between two ticks to another, so that whole ticks are measured.
    await asyncio.sleep(((await store.due_schedules(0)).next_in + args.every / 2) % args.every)
    while await Scheduler(store).turn() == 0:
        pass
    began, cpu, server = (await store.due_schedules(0)).now, time.process_time(), cpu_of(cluster)
    statements.clear()
    for cycle in cycles:
        cycle.start()
    await asyncio.sleep(args.ticks * args.every)
    for cycle in cycles:
        await cycle.stop()
    cpu, server = time.process_time() - cpu, cpu_of(cluster) - server
    ran = sum(statements.values())
    late, ticks = await lateness(store, began)
    calls = sum((each.calls for each in watched), Counter())
    await store.close()
    return {
        "store": args.url.partition(":")[0],
        "schedules": args.schedules,
        "distinct": args.distinct,
        "schedulers": args.schedulers,
        "ticks": ticks,
        "jobs": len(late),
        "late_p50_s": round(late[len(late) // 2], 3),
        "late_p99_s": round(late[int(len(late) * 0.99)], 3),
        "late_most_s": round(late[-1], 3),
        "cpu_s_per_tick": round(cpu / ticks, 3),
        "server_cpu_s_per_tick": round(server / ticks, 3) if cluster else None,
        "calls_per_tick": {name: round(count / ticks, 1) for name, count in calls.items()},
        "statements_per_tick": round(ran / ticks) if ran else None,
    }


async def lateness(store, since):
    """Of every job since then, sorted; and how many instants had any."""
    late, ticks, after = [], set(), None
    while True:
        page = await store.find(Filter(task="work"), after, 1000)
        for job in page.jobs:
            if job.tick is not None and job.tick.timestamp() * 1e6 >= since:
                late.append((job.enqueued_at - job.tick).total_seconds())
                ticks.add(job.tick)
        after = page.next
        if after is None:
            return sorted(late), len(ticks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--schedulers", type=int, default=1)
    parser.add_argument("--every", type=int, default=10, help="seconds between two ticks")
    parser.add_argument("--distinct", action="store_true", help="no two schedules share a rule")
    parser.add_argument("--ticks", type=int, default=6)
    args = parser.parse_args()
    with Cluster() if args.url == "postgres" else nullcontext() as cluster:
        print(json.dumps(run_loop(measure(args, cluster.tcp_url if cluster else args.url, cluster))))


if __name__ == "__main__":
    main()
