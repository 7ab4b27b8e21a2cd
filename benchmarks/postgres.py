"""Hawser on PostgreSQL beside the bare loop, and as its callers meet it, on one server, in one run.

    python benchmarks/postgres.py ratio URL --limit pg_limit.py     drain and steady, as a share of the bare loop
    python benchmarks/postgres.py cost URL --limit pg_limit.py      CPU for a job of server and client, beside the bare loop's
    python benchmarks/postgres.py callers URL                       single enqueues from 32 threads and from 1,000 tasks

URL needs no schema of its own: each measurement works in a new one and drops it. `postgres` in its place starts a server
whose log has its files already. Peers are measured by `benchmarks/peers.py`;
what needs no reference beside it is an experiment of `hawser lab`.
"""

import argparse
import asyncio
import gc
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from statistics import median

import asyncpg

from hawser import Hawser
from hawser.lab.cluster import Cluster
from hawser.lab.generator import noops
from hawser.lab.store_under_test import SERVER_SETTINGS, WARM
from hawser.outcome import Done
from hawser.store import Settlement, Share
from hawser.stores.postgres import PostgresStore
from hawser.stores.postgres.address import parse

LOG = "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint"
BENCH = ("--jobs", "200000", "--processes", "2", "--slots", "400", "--claim-batch", "400", "--json")


def with_schema(url, name):
    return f"{url}{'&' if '?' in url else '?'}schema={name}"


@asynccontextmanager
async def fresh(url):
    """A store in a new schema, dropped in the end."""
    full = with_schema(url, f"bench_{os.getpid()}_{time.monotonic_ns() % 10**9}")
    store = PostgresStore(parse(full))
    await store.open()
    try:
        yield full, store
    finally:
        await store.server.connection("operate").rows(f"drop schema {store.address.schema} cascade")
        await store.close()


async def ratio(asked):
    """Rounds of both, each of them first in turn; each round has its ratio, and the middle one of these counts."""
    rounds = []
    for number in range(asked.times):
        parts = [_ours, _bare_loop][:: -1 if number % 2 else 1]
        seen = {}
        for part in parts:
            seen |= await part(asked)
        rounds.append(seen)
        print(json.dumps(seen), flush=True)
    middle = {}
    for name in ("enqueue", "drain", "steady"):
        mine, theirs = ([seen[who][key] for seen in rounds] for who, key in (("hawser", f"{name}_per_s"), ("bare loop", name)))
        ratios = [round(ours / bare, 3) for ours, bare in zip(mine, theirs, strict=True)]
        middle[name] = {"hawser": median(mine), "bare loop": median(theirs), "ratios": ratios, "ratio": median(ratios)}
    print(json.dumps(middle, indent=2))


async def _ours(asked):
    async with fresh(asked.url) as (full, _):
        bench = [Path(sys.executable).parent / "hawser", "bench", "--store", full, *BENCH]
        said = subprocess.run(bench, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return {"hawser": json.loads(said)}


async def _bare_loop(asked):
    line = [sys.executable, asked.limit, "--dsn", asked.url, "--jobs", "200000", "--processes", "2", "--batch", "400"]
    return {"bare loop": json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)}


async def callers(asked):
    async with fresh(asked.url) as (full, _):
        app = Hawser(full)
        noop = app.task(name="noop")(lambda seq, to: None)
        await app.aopen()

        def thread(seconds, counts, n):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                noop.enqueue(seq=n, to="user@example.com")
                counts[n] += 1

        counts = [0] * 32
        threads = [threading.Thread(target=thread, args=(5, counts, n)) for n in range(32)]
        began = time.monotonic()
        for each in threads:
            each.start()
        await asyncio.to_thread(lambda: [each.join() for each in threads])
        by_threads = round(sum(counts) / (time.monotonic() - began))

        async def task(end):
            made = 0
            while time.monotonic() < end:
                await noop.aenqueue(seq=made, to="user@example.com")
                made += 1
            return made

        began = time.monotonic()
        made = await asyncio.gather(*(task(began + 5) for _ in range(1000)))
        by_tasks = round(sum(made) / (time.monotonic() - began))
        await app.aclose()
        await asyncio.to_thread(app.close)
        print(json.dumps({"32 threads, sync, per_s": by_threads, "1000 tasks, async, per_s": by_tasks}))


class Meter:
    """The CPU of one of the server's processes, which must be on this machine, and this one, batch by batch. The lower quartile
    of the batches counts: what else the machine does makes some of them dearer, and none cheaper."""

    def __init__(self, pid):
        self._schedstat = Path(f"/proc/{pid}/schedstat")
        self._batches = []

    def _spent(self):
        return int(self._schedstat.read_text().split()[0]), time.process_time_ns()

    async def batch(self, work):
        before = self._spent()
        await work
        self._batches.append([after - spent for after, spent in zip(self._spent(), before, strict=True)])

    def us(self, batch):
        """Of the server and of this process, for each job."""
        server, client = (sorted(each)[len(each) // 4] / batch / 1_000 for each in zip(*self._batches, strict=True))
        return {"server_us": round(server, 2), "client_us": round(client, 2)}


async def cost(asked):
    """One client, one kind of statement after the other, batches of 400."""
    jobs, batch = asked.jobs, 400
    if Path(asked.limit).exists():
        print(json.dumps({"bare loop": await bare_cost(asked, jobs, batch)}))
    async with fresh(asked.url) as (_, store):
        found, runs = {}, []

        async def enqueue():
            await store.enqueue(noops(batch))

        async def claim():
            runs.append(await store.claim([Share("default")], batch, "w", 300))

        async def settle():
            await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint) for run in runs.pop(0)])

        kinds = {"enqueue": enqueue, "claim": claim, "settle": settle}
        for work in kinds.values():
            await work()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)  # as in a worker
        for kind, work in kinds.items():
            meter = Meter(await store.server.connection(kind).value("select pg_backend_pid()"))
            log = await store.server.connection("read").value(LOG)
            for _ in range(jobs // batch):
                await meter.batch(work())
            found[kind] = meter.us(batch) | {"log_bytes": round((await store.server.connection("read").value(LOG) - log) / jobs)}
    print(json.dumps({"hawser": found}))


async def bare_cost(asked, jobs, batch):
    spec = importlib.util.spec_from_file_location("limit", asked.limit)
    limit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(limit)
    con = await asyncpg.connect(asked.url)
    await con.execute(limit.DDL)
    insert, claim, ack = [await con.prepare(each) for each in (limit.INSERT, limit.CLAIM, limit.ACK)]
    pid, found, taken = await con.fetchval("select pg_backend_pid()"), {}, []

    async def take():
        taken.append(await claim.fetch("default", batch, "w"))

    for kind in ("enqueue", "claim", "settle"):
        meter = Meter(pid)
        for _ in range(jobs // batch):
            if kind == "enqueue":
                await meter.batch(insert.fetch(["noop"] * batch, ['{"seq": 1, "to": "user@example.com"}'] * batch))
            elif kind == "claim":
                await meter.batch(take())
            else:
                await meter.batch(ack.fetch([row[0] for row in taken.pop(0)], "w"))
        found[kind] = meter.us(batch)
    await con.execute("drop schema holdfast_limit cascade")
    await con.close()
    return found


MEASUREMENTS = {"ratio": ratio, "cost": cost, "callers": callers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("url")
    parser.add_argument("--limit", default="../shared/limit/pg_limit.py", help="the bare loop's script")
    parser.add_argument("--times", type=int, default=5, help="rounds of `ratio`")
    parser.add_argument("--jobs", type=int, default=100_000, help="of `cost`")
    asked = parser.parse_args()
    with Cluster(settings=SERVER_SETTINGS) if asked.url == "postgres" else nullcontext() as server:
        if server is not None:
            server.warm(WARM)
            asked.url = server.url
        asyncio.run(MEASUREMENTS[asked.what](asked))


if __name__ == "__main__":
    main()
