"""Hawser on PostgreSQL beside the bare loop, and as its callers meet it, on one server, in one run.

    python benchmarks/postgres.py ratio URL --limit pg_limit.py     drain and steady, as a share of the bare loop
    python benchmarks/postgres.py cost URL --limit pg_limit.py      the server's CPU for a job, beside the bare loop's
    python benchmarks/postgres.py callers URL                       single enqueues from 32 threads and from 1,000 tasks

URL needs no schema of its own: each measurement works in a new one and drops it. Peers are measured by `benchmarks/peers.py`;
what needs no reference beside it is an experiment of `hawser lab`.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from hawser import Hawser
from hawser.lab.generator import noops
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
        await store.server.line("operate").rows(f"drop schema {store.address.schema} cascade")
        await store.close()


async def ratio(asked):
    """Three times each, in turn; the middle ones count."""
    ours, bare = [], []
    for _ in range(asked.times):
        async with fresh(asked.url) as (full, _):
            bench = [Path(sys.executable).parent / "hawser", "bench", "--store", full, *BENCH]
            said = subprocess.run(bench, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
        ours.append(json.loads(said))
        line = [sys.executable, asked.limit, "--dsn", asked.url, "--jobs", "200000", "--processes", "2", "--batch", "400"]
        bare.append(json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout))
        print(json.dumps({"hawser": ours[-1], "bare loop": bare[-1]}), flush=True)
    middle = {}
    for name in ("enqueue", "drain", "steady"):
        mine, theirs = (
            sorted(values)[len(values) // 2] for values in ([o[f"{name}_per_s"] for o in ours], [b[name] for b in bare])
        )
        middle[name] = {"hawser": mine, "bare loop": theirs, "ratio": round(mine / theirs, 2)}
    print(json.dumps(middle, indent=2))


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
    """The CPU of one of the server's processes, which must be on this machine."""

    def __init__(self, pid):
        self._stat = Path(f"/proc/{pid}/stat")
        self._began = self._spent()

    def _spent(self):
        user, system = self._stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def us(self, jobs):
        return round((self._spent() - self._began) / jobs * 1e6, 1)


async def cost(asked):
    """One client, one kind of statement after the other, batches of 400."""
    jobs, batch = 100_000, 400
    print(json.dumps({"bare loop": await bare_cost(asked, jobs, batch)}))
    async with fresh(asked.url) as (_, store):
        found = {}
        await store.enqueue(noops(batch))
        runs = [await store.claim([Share("default")], batch, "w", 300)]
        await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint) for run in runs.pop()])
        log = await store.server.line("read").value(LOG)
        for kind in ("enqueue", "claim", "settle"):
            meter = Meter(await store.server.line(kind).value("select pg_backend_pid()"))
            for _ in range(jobs // batch):
                if kind == "enqueue":
                    await store.enqueue(noops(batch))
                elif kind == "claim":
                    runs.append(await store.claim([Share("default")], batch, "w", 300))
                else:
                    await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint) for run in runs.pop(0)])
            before, log = log, await store.server.line("read").value(LOG)
            found[kind] = {"server_us": meter.us(jobs), "log_bytes": round((log - before) / jobs)}
    print(json.dumps({"hawser": found}))


async def bare_cost(asked, jobs, batch):
    spec = importlib.util.spec_from_file_location("limit", asked.limit)
    limit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(limit)
    con = await asyncpg.connect(asked.url)
    await con.execute(limit.DDL)
    insert, claim, ack = [await con.prepare(each) for each in (limit.INSERT, limit.CLAIM, limit.ACK)]
    pid, found, taken = await con.fetchval("select pg_backend_pid()"), {}, []
    for kind in ("enqueue", "claim", "settle"):
        meter = Meter(pid)
        for _ in range(jobs // batch):
            if kind == "enqueue":
                await insert.fetch(["noop"] * batch, ['{"seq": 1, "to": "user@example.com"}'] * batch)
            elif kind == "claim":
                taken.append(await claim.fetch("default", batch, "w"))
            else:
                await ack.fetch([row[0] for row in taken.pop(0)], "w")
        found[kind] = {"server_us": meter.us(jobs)}
    await con.execute("drop schema holdfast_limit cascade")
    await con.close()
    return found


MEASUREMENTS = {"ratio": ratio, "cost": cost, "callers": callers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("url")
    parser.add_argument("--limit", default="../shared/limit/pg_limit.py", help="the bare loop's script")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    asyncio.run(MEASUREMENTS[asked.what](asked))


if __name__ == "__main__":
    main()
