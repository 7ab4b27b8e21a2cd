"""The stores, a bare loop on streams and a peer side by side, in one run: what findings compare.

    python benchmarks/comparison.py [--jobs 40000] [--processes 2] [--slots 200] [--only redis,streams] > comparison.json

Each on a new file or a new server, one after the other. One JSON object, a column for each; what a column cannot have is null.

- enqueue_per_s: batches of 400 by one producer
- drain_per_s, steady_per_s, claim_p50_ms, claim_p99_ms: a backlog by worker processes, then as much enqueued and drained at once
- enqueue_p50_ms, enqueue_p99_ms, pickup_p50_ms, pickup_p99_ms: single jobs at 200 a second
- worker_us, server_us, log_bytes: CPU of the workers and of the server, and its log, for a job from enqueue to its end, over both
  phases; SQLite's work is its workers', and its log is not counted
- waiting_bytes, done_bytes: memory of a Redis server for a job; disk of the others, indexes included
- bare stream: without worker, lease, fence or counts (`redis_designs.py`); its claim is one XREADGROUP of 400
- taskiq: in the virtual environment that `python benchmarks/peers.py install taskiq` made in the folder that `--peers` names
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from redis_designs import played

from hawser.lab.bench import BENCH_JOBS_PER_CALL, bench
from hawser.lab.bottleneck import BusyMeter, metered
from hawser.lab.generator import noops
from hawser.lab.load import produce, quiet, wait_done, workers
from hawser.lab.store_under_test import StorePlace, address, connected, opened
from stores import memory

STORES = {"postgres": "postgres", "sqlite": "sqlite", "redis": "redis", "streams": "redis?lanes=streams"}
SAMPLE = 20_000
PEERS = str(Path(__file__).with_name("peers.py"))


async def measured(place: StorePlace, args: argparse.Namespace) -> dict[str, Any]:
    """A bench of that store, and what it cost."""
    async with place.fresh() as (url, _):
        meters: list[BusyMeter] = []

        @asynccontextmanager
        async def around() -> AsyncIterator[None]:
            async with metered(place, url) as meter:
                meters.append(meter)
                yield

        found = await bench(
            url, jobs=args.jobs, processes=args.processes, slots=args.slots, claim_batch=args.slots, show=quiet, around=around
        )
        spent = meters[0].require().per_job(2 * args.jobs)
        return {
            **msgspec.to_builtins(found),
            **{name: spent[name] for name in ("worker_us", "server_us", "log_bytes", "cpu_share")},
            "version": await place.version(),
        }


async def on_disk(place: StorePlace) -> dict[str, int]:
    """Bytes of a job that waits, and of one that is done and kept, of a store that is not in memory."""
    async with place.fresh() as (url, store):
        sizes = [await _size(url)]
        await produce(store, noops(SAMPLE), BENCH_JOBS_PER_CALL, quiet, "")
        sizes.append(await _size(url))
        with tempfile.TemporaryDirectory() as folder, workers(url, Path(folder), processes=1, slots=200, claim_batch=200) as crew:
            await wait_done(store, SAMPLE, crew, quiet, "")
        sizes.append(await _size(url))
    return {"waiting_bytes": (sizes[1] - sizes[0]) // SAMPLE, "done_bytes": (sizes[2] - sizes[0]) // SAMPLE}


async def _size(url: str) -> int:
    """Of SQLite with its log moved into the file."""
    if url.startswith("sqlite"):
        import sqlite3  # only for this

        path = url.removeprefix("sqlite:///")
        con = sqlite3.connect(path, timeout=30)
        con.execute("pragma wal_checkpoint(passive)")
        con.close()
        return os.stat(path).st_size
    sql = (
        "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = $1"
    )
    async with connected(url) as con:
        return int(await con.fetchval(sql + " and relkind = 'r'", address(url).schema))


def of_store(name: str, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hawser-compare-") as folder, opened(STORES[name], Path(folder), warm=True) as place:
        column = asyncio.run(measured(place, args))
        if place.kind != "redis":
            return {**column, **asyncio.run(on_disk(place))}
    sizes = asyncio.run(memory("lists" if name == "redis" else name))
    return {**column, "waiting_bytes": sizes["waiting_bytes"], "done_bytes": sizes["done_bytes"]}


def bare_stream(args: argparse.Namespace) -> dict[str, Any]:
    found = played("bare stream", args.jobs, BENCH_JOBS_PER_CALL, args.processes, 0)
    return {
        "drain_per_s": round(found["drain_per_s"]),
        "steady_per_s": round(found["steady_per_s"]),
        "claim_p50_ms": round(found["take_p50_ms"], 2),
        "claim_p99_ms": round(found["take_p99_ms"], 2),
        "worker_us": round(found["client_us"], 1),
        "server_us": round(found["drain_cpu_us"] + found["enqueue_us"], 1),
        "log_bytes": round(found["log_bytes"]),
        "waiting_bytes": round(found["waiting_bytes"]),
        "done_bytes": None,
    }


def taskiq(args: argparse.Namespace) -> dict[str, Any]:
    words = ["taskiq", "--jobs", str(args.taskiq), "--parts", "speed", "--peers", args.peers]
    said = subprocess.run([sys.executable, PEERS, *words], capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(said.stdout.splitlines()[0])
    except (IndexError, ValueError):
        return {"left_out": said.stderr[-500:]}
    return {**found, "enqueue_per_s": found.get("enqueue_bulk_per_s")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=40_000, help="of each phase")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--slots", type=int, default=200, help="of each process, and the most jobs in one claim")
    parser.add_argument("--only", default=",".join((*STORES, "bare stream", "taskiq")))
    parser.add_argument("--taskiq", type=int, default=10_000, help="jobs of each phase for taskiq")
    parser.add_argument("--peers", default="/tmp/peers", help="the folder of `peers.py install taskiq`")
    args = parser.parse_args()
    columns: dict[str, Any] = {}
    for name in args.only.split(","):
        load, began = os.getloadavg()[0], time.monotonic()
        columns[name] = bare_stream(args) if name == "bare stream" else taskiq(args) if name == "taskiq" else of_store(name, args)
        columns[name] |= {"load_before": round(load, 1), "took_s": round(time.monotonic() - began)}
        print(f"{name}: {columns[name]['took_s']} s", file=sys.stderr, flush=True)
    about = {
        "jobs": args.jobs,
        "processes": args.processes,
        "slots": args.slots,
        "cores": os.cpu_count(),
        "system": platform.platform(),
    }
    print(json.dumps({**about, "columns": columns}, indent=2))


if __name__ == "__main__":
    main()
