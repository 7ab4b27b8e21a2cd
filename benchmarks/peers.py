"""Peers on PostgreSQL, drained by two processes each, with the payload of our own bench.

    pip install pgqueuer procrastinate
    python benchmarks/peers.py pgqueuer|procrastinate postgresql://… [--jobs 200000]

pgqueuer: asyncpg and uvloop, batches of 200, a no-op entrypoint. procrastinate: its psycopg connector, 100 jobs at a time per
process. Each makes its tables in a database of its own, dropped in the end. The rate is from the first job that is gone to
the last, looked at from outside ten times a second, as for our own figure.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import uvloop

PAYLOAD = b'{"seq": %d, "to": "user@example.com"}'


def in_database(url, name):
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{name}"))


async def pgqueuer_fill(url, jobs):
    from pgqueuer.queries import Queries

    con = await asyncpg.connect(url)
    queries = Queries.from_asyncpg_connection(con)
    await queries.install()
    began = time.perf_counter()
    for start in range(0, jobs, 1_000):
        await queries.enqueue(["noop"] * 1_000, [PAYLOAD % n for n in range(start, start + 1_000)], [0] * 1_000)
    took = time.perf_counter() - began
    await con.close()
    return took


async def pgqueuer_work(url):
    from pgqueuer import PgQueuer

    con = await asyncpg.connect(url)
    queue = PgQueuer.from_asyncpg_connection(con)

    @queue.entrypoint("noop")
    async def noop(job):
        json.loads(job.payload)

    await queue.run(batch_size=200, dequeue_timeout=timedelta(seconds=1))


PGQUEUER_LEFT = "select count(*) from pgqueuer"


def procrastinate_app(url):
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=20))

    @app.task(name="noop")
    async def noop(seq, to):
        pass

    return app, noop


async def procrastinate_fill(url, jobs):
    app, noop = procrastinate_app(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        for start in range(0, jobs, 1_000):
            await noop.batch_defer_async(*({"seq": n, "to": "user@example.com"} for n in range(start, start + 1_000)))
        return time.perf_counter() - began


async def procrastinate_work(url):
    app, _ = procrastinate_app(url)
    async with app.open_async():
        await app.run_worker_async(concurrency=100, wait=True, install_signal_handlers=False, delete_jobs="always")


PROCRASTINATE_LEFT = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"

PEERS = {
    "pgqueuer": (pgqueuer_fill, pgqueuer_work, PGQUEUER_LEFT),
    "procrastinate": (procrastinate_fill, procrastinate_work, PROCRASTINATE_LEFT),
}


def run(work, url):
    uvloop.run(work(url))


async def measure(peer, url, jobs):
    fill, work, left_sql = PEERS[peer]
    name = f"peer_{peer}"
    admin = await asyncpg.connect(url)
    await admin.execute(f"drop database if exists {name} with (force)")
    await admin.execute(f"create database {name}")
    own = in_database(url, name)
    filled = await fill(own, jobs)
    con = await asyncpg.connect(own)
    processes = [multiprocessing.Process(target=run, args=(work, own), daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    seen = []
    try:
        while True:
            left = await con.fetchval(left_sql)
            if left < jobs:
                seen.append((time.perf_counter(), jobs - left))
            if left == 0:
                break
            await asyncio.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.join()
        await con.close()
        await admin.execute(f"drop database {name} with (force)")
        await admin.close()
    rate = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
    print(json.dumps({"peer": peer, "jobs": jobs, "bulk enqueue_per_s": round(jobs / filled), "drain_per_s": round(rate)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=200_000)
    asked = parser.parse_args()
    uvloop.run(measure(asked.peer, asked.url, asked.jobs))


if __name__ == "__main__":
    sys.exit(main())
