"""Hawser on PostgreSQL beside the bare loop and beside peers, on one server, in one run.

    python benchmarks/postgres.py ratio URL --limit pg_limit.py     drain and steady, as a share of the bare loop
    python benchmarks/postgres.py peers URL                         drain of pgqueuer and procrastinate, at their best settings
    python benchmarks/postgres.py concurrency URL                   drain by slots, 16 … 1,024
    python benchmarks/postgres.py batch URL                         drain by claim batch, 1 … 1,000
    python benchmarks/postgres.py drain URL --jobs 5000000          the rate of each tenth of a deep drain
    python benchmarks/postgres.py lateness URL --jobs 1000000       delayed jobs behind a backlog
    python benchmarks/postgres.py snapshot URL --seconds 600 --svg FILE   a fixed rate while an old snapshot is held elsewhere
    python benchmarks/postgres.py callers URL                       single enqueues from 32 threads and from 1,000 tasks

URL needs no schema of its own: each measurement works in a new one and drops it.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from hawser import Hawser
from hawser.job import NewJob
from hawser.lab.load import percentile, wait_done, workers
from hawser.stores.postgres import PostgresStore
from hawser.stores.postgres.address import parse

BENCH = ("--jobs", "200000", "--processes", "2", "--slots", "400", "--claim-batch", "400", "--json")
HOLD = "begin isolation level repeatable read; select 1 from {schema}.job limit 1"
BODY = b'{"seq": %d, "to": "user@example.com"}'


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


def jobs(count, **fields):
    return [NewJob(task="noop", body=BODY % seq, **fields) for seq in range(count)]


async def fill(store, count):
    for begin in range(0, count, 50_000):
        await store.enqueue(jobs(min(50_000, count - begin)))
        if count > 200_000:
            print(f"  {begin + 50_000:,} of {count:,}", file=sys.stderr, end="\r", flush=True)


def quiet(*_):
    pass


def cpu():
    """Seconds of CPU by process, from /proc."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
                line = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()
            kind = "server" if text.partition("(")[2].startswith("postgres") else "worker" if "hawser.worker" in line else None
            if kind:
                found[int(entry.name)] = (kind, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    return found


def spent(before, after):
    total = {"server": 0.0, "worker": 0.0}
    for pid, (kind, seconds) in after.items():
        total[kind] += seconds - before.get(pid, (kind, 0.0))[1]
    return total


async def drained(url, count, *, processes, slots, batch):
    """Drain a backlog; jobs/s, and what a job cost."""
    async with fresh(url) as (full, store):
        await fill(store, count)
        con = await asyncpg.connect(store.address.dsn)
        await con.execute("checkpoint")
        log, before = await con.fetchval("select pg_current_wal_lsn()"), cpu()
        waits = {}
        with (
            tempfile.TemporaryDirectory() as folder,
            workers(full, Path(folder), processes=processes, slots=slots, claim_batch=batch) as worker,
        ):
            watching = asyncio.ensure_future(watch(con, waits))
            seen = await wait_done(store, count, worker, quiet, "")
            watching.cancel()
            used = spent(before, cpu())
            rate = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
        await asyncio.gather(watching, return_exceptions=True)
        written = await con.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", log)
        await con.close()
        top = sorted(waits.items(), key=lambda item: -item[1])[:3]
        return {
            "drain_per_s": round(rate),
            "worker_us": round(used["worker"] / count * 1e6, 1),
            "server_us": round(used["server"] / count * 1e6, 1),
            "log_bytes": round(written / count),
            "waits": {name: round(n / max(1, sum(waits.values())), 2) for name, n in top},
        }


async def watch(con, waits):
    """What the server's processes of ours wait for, looked at ten times a second."""
    while True:
        rows = await con.fetch(
            "select coalesce(wait_event, 'CPU') from pg_stat_activity where application_name = 'hawser' and state = 'active'"
        )
        for (event,) in rows:
            waits[event] = waits.get(event, 0) + 1
        await asyncio.sleep(0.1)


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


async def concurrency(asked):
    for slots in (16, 32, 64, 128, 256, 512, 1024):
        found = await drained(asked.url, asked.jobs, processes=2, slots=slots, batch=min(slots, 400))
        print(json.dumps({"slots": slots, **found}), flush=True)


async def batch(asked):
    for size in (1, 4, 16, 64, 200, 400, 1000):
        count = min(asked.jobs, 4_000 * size)
        found = await drained(asked.url, count, processes=2, slots=max(size, 64), batch=size)
        print(json.dumps({"claim batch": size, **found}), flush=True)


async def drain(asked):
    async with fresh(asked.url) as (full, store):
        await fill(store, asked.jobs)
        with (
            tempfile.TemporaryDirectory() as folder,
            workers(full, Path(folder), processes=2, slots=400, claim_batch=400) as worker,
        ):
            seen = await wait_done(store, asked.jobs, worker, quiet, "")
        tenths = []
        for tenth in range(10):
            part = [(at, done) for at, done in seen if tenth <= done * 10 / asked.jobs <= tenth + 1]
            tenths.append(round((part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0])))
        print(json.dumps({"jobs": asked.jobs, "per tenth": tenths, "last to first": round(tenths[-1] / tenths[0], 2)}))


async def lateness(asked):
    """A backlog of the same priority that takes longer than the measurement, and jobs that fall due meanwhile."""
    async with fresh(asked.url) as (full, store):
        await fill(store, asked.jobs)
        delayed = [NewJob(task="noop", body=BODY % n, delay=1 + n * 10 / 2_000, tags=("delayed",)) for n in range(2_000)]
        await store.enqueue(delayed)
        with (
            tempfile.TemporaryDirectory() as folder,
            workers(full, Path(folder), processes=2, slots=200, claim_batch=200) as worker,
        ):
            await asyncio.sleep(14)
            left = (await store.stats("default")).ready
            assert worker.poll() is None
        late = []
        for job in delayed:
            found = await store.get(job.id)
            if found.started_at:
                late.append((found.started_at - found.run_at).total_seconds())
        print(
            json.dumps(
                {
                    "backlog at start": asked.jobs,
                    "backlog at end": left,
                    "delayed": len(delayed),
                    "started": len(late),
                    "lateness_p50_s": round(percentile(late, 0.5), 3),
                    "lateness_p99_s": round(percentile(late, 0.99), 3),
                    "lateness_max_s": round(max(late), 3),
                }
            )
        )


async def snapshot(asked):
    """Jobs at a fixed rate, first free, then with a REPEATABLE READ transaction held open by somebody else."""
    async with fresh(asked.url) as (full, store):
        with tempfile.TemporaryDirectory() as folder, workers(full, Path(folder), processes=2, slots=400, claim_batch=400):
            stop, marks = asyncio.Event(), []
            producing = asyncio.ensure_future(steady(store, asked.rate, stop))
            holder = await asyncpg.connect(store.address.dsn)
            began, held_at = time.monotonic(), max(20.0, asked.seconds / 10)
            await asyncio.sleep(5)
            read, done = {}, (await store.stats("default")).done
            last = time.monotonic()
            held = False
            while time.monotonic() - began < held_at + asked.seconds:
                await asyncio.sleep(5)
                if not held and time.monotonic() - began >= held_at:
                    await holder.execute(
                        f"begin isolation level repeatable read; select 1 from {store.address.schema}.job limit 1"
                    )
                    held = True
                stats, now = await store.stats("default"), time.monotonic()
                claims = new_claims(Path(folder), read)
                mark = {
                    "at": round(now - began),
                    "held": held,
                    "per_s": round((stats.done - done) / (now - last)),
                    "backlog": stats.ready,
                    "claim_p50_ms": round(percentile(claims, 0.5) * 1e3, 2),
                    "claim_p99_ms": round(percentile(claims, 0.99) * 1e3, 2),
                }
                done, last = stats.done, now
                marks.append(mark)
                print(json.dumps(mark), flush=True)
            await holder.close()
            stop.set()
            await producing
    free, kept = ([mark for mark in marks if mark["held"] is held] for held in (False, True))
    summary = {
        "rate asked": asked.rate,
        "free_per_s": round(sum(m["per_s"] for m in free) / len(free)),
        "held_per_s": round(sum(m["per_s"] for m in kept) / len(kept)),
        "held_last_minute_per_s": round(sum(m["per_s"] for m in kept[-12:]) / len(kept[-12:])),
        "claim_p99_ms": {
            "free": percentile([m["claim_p99_ms"] for m in free], 0.5),
            "held": percentile([m["claim_p99_ms"] for m in kept], 0.5),
        },
        "claim_p99_ms_last_minute": percentile([m["claim_p99_ms"] for m in kept[-12:]], 0.5),
    }
    print(json.dumps(summary, indent=2))
    if asked.svg:
        Path(asked.svg).write_text(plot(marks, held_at))


def new_claims(folder, read):
    """Seconds of the claims written down since the last look."""
    found = []
    for path in folder.glob("claims-*"):
        text = path.read_bytes()
        lines = text[read.get(path, 0) :]
        whole = lines[: lines.rfind(b"\n") + 1]
        read[path] = read.get(path, 0) + len(whole)
        found += [json.loads(line)[1] for line in whole.splitlines()]
    return found


async def steady(store, rate, stop):
    step = 0.02
    began, sent = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - began) * rate) - sent
        if due > 0:
            await store.enqueue(jobs(min(due, 2_000)))
            sent += min(due, 2_000)
        await asyncio.sleep(step)


def plot(marks, held_at, width=900, height=420):
    """Rate and claim p99 over time, as SVG."""
    left, bottom, top = 60, 40, 30
    last = max(mark["at"] for mark in marks)
    most, slowest = max(m["per_s"] for m in marks) * 1.1, max(20.0, max(m["claim_p99_ms"] for m in marks) * 1.1)

    def x(at):
        return left + (width - 2 * left) * at / last

    def line(name, high, colour):
        points = " ".join(f"{x(m['at']):.1f},{height - bottom - (height - bottom - top) * m[name] / high:.1f}" for m in marks)
        return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'

    def words(at_x, at_y, text, anchor="middle", colour="#333"):
        return f'<text x="{at_x:.0f}" y="{at_y:.0f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{x(held_at):.0f},{top}H{x(last):.0f}V{height - bottom}H{x(held_at):.0f}Z" fill="#f3efe2"/>',
        words((x(held_at) + x(last)) / 2, top + 16, "a REPEATABLE READ transaction is held open elsewhere"),
        line("per_s", most, "#1b6ca8"),
        line("claim_p99_ms", slowest, "#c0392b"),
        words(left - 8, top + 6, f"{most:,.0f}", "end", "#1b6ca8"),
        words(left - 8, height - bottom, "0", "end", "#1b6ca8"),
        words(left, top - 10, "jobs/s", "middle", "#1b6ca8"),
        words(width - left + 8, top + 6, f"{slowest:.0f} ms", "start", "#c0392b"),
        words(width - left + 8, height - bottom, "0", "start", "#c0392b"),
        words(width - left, top - 10, "claim p99", "middle", "#c0392b"),
        *(words(x(at), height - bottom + 18, f"{at} s") for at in range(0, last + 1, max(1, last // 10 // 10 * 10))),
        f'<path d="M{left},{top}V{height - bottom}H{width - left}V{top}" fill="none" stroke="#999"/>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


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


MEASUREMENTS = {
    "ratio": ratio,
    "concurrency": concurrency,
    "batch": batch,
    "drain": drain,
    "lateness": lateness,
    "snapshot": snapshot,
    "callers": callers,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("url")
    parser.add_argument("--limit", default="../shared/limit/pg_limit.py", help="the bare loop's script")
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--rate", type=int, default=8_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--svg")
    asked = parser.parse_args()
    asyncio.run(MEASUREMENTS[asked.what](asked))


if __name__ == "__main__":
    main()
