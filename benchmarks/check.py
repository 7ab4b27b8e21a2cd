"""What a job costs on the hot paths, held against figures that are kept: CPU and bytes of log, never times.

    script/bench-check                      measure, compare with benchmarks/kept.json; exit code 1 when a path got dearer
    script/bench-check --only sqlite        one store, or several with commas
    script/bench-check --runs 5             measure so often, and show how far the runs are apart
    script/bench-check --keep               what was measured is kept from now on

The paths of each store: enqueue, claim and settle at the seam, in batches of 400, and a worker that drains a backlog. CPU is
that of this process with all its threads and of the server's processes. It is told in loops: how often a fixed loop of plain
Python could have run for it, in the same process. Microseconds of two machines, or of one machine on two days, differ by far more
than what is to be found here.

Each path and the loop are measured in turns, round by round, and the least of each counts: what else the machine does can
only add. A path is dearer when it takes over 5 % more than what is kept; before that is said it is measured again, twice at
the most, for the same reason. Where other programs keep the cores busy it says more of them than of us: then leave it, or look
at the log alone, which is the same at any load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

KEPT: Final = Path(__file__).with_name("kept.json")
WITHIN: Final = 0.05
STORES: Final = ("memory", "sqlite", "postgres", "redis")
PATHS: Final = ("enqueue", "claim", "settle", "worker")
BATCH: Final = 400
LOOP: Final = 1_000
LOOPS_A_ROUND: Final = 40
AGAIN: Final = 2
"""Times that a path which looks dearer is measured again."""

Figures = dict[str, dict[str, dict[str, float]]]
"""By store and path: `loops` and, where there is a log, `log_bytes`."""


def compared(kept: Figures, found: Figures, within: float = WITHIN) -> tuple[list[str], list[str]]:
    """What got dearer or has nothing to be held against, and what got cheaper."""
    dearer, cheaper = [], []
    for store, paths in found.items():
        for path, figures in paths.items():
            for unit, now in figures.items():
                was = kept.get(store, {}).get(path, {}).get(unit)
                name = f"{store} {path}: {now:,.4g} {unit.replace('_', ' ')} a job"
                if was is None:
                    dearer.append(f"{name}, and nothing is kept to hold it against; --keep keeps it")
                elif now > was * (1 + within):
                    dearer.append(f"{name}, {now / was - 1:+.1%} of the {was:,.4g} that are kept")
                elif now < was * (1 - within):
                    cheaper.append(f"{name}, {now / was - 1:+.1%} of the {was:,.4g} that are kept")
        dearer += [f"{store} {path} is kept and was not measured" for path in kept.get(store, {}).keys() - paths.keys()]
    return dearer, cheaper


def least(one: Figures, other: Figures) -> Figures:
    """Of two measurements, figure by figure: what else the machine did only added."""
    return {
        store: {
            path: {unit: min(now, other.get(store, {}).get(path, {}).get(unit, now)) for unit, now in figures.items()}
            for path, figures in paths.items()
        }
        for store, paths in one.items()
    }


# One store, in a process of its own.


class Tray:
    """What the loop works with: attributes, a dict, a list, a string and bytes, as the hot path does."""

    __slots__ = ("last", "seen")

    def __init__(self) -> None:
        self.last = ""
        self.seen: dict[str, int] = {}

    def take(self, number: int) -> int:
        self.last = f"job-{number & 255}"
        self.seen[self.last] = self.seen.get(self.last, 0) + 1
        return self.seen[self.last]


def loop() -> float:
    """Seconds of CPU that the fixed loop takes."""
    began = time.thread_time()
    for _ in range(LOOPS_A_ROUND):
        tray = Tray()
        kept = [tray.take(number) for number in range(LOOP)]
        b",".join(str(each).encode() for each in kept)
    return (time.thread_time() - began) / LOOPS_A_ROUND / LOOP


class Meter:
    """CPU of this process and of a server, and the bytes of the server's log."""

    def __init__(self, server: Any) -> None:
        self._server = server

    async def read(self) -> tuple[float, int]:
        cpu = time.process_time()
        if self._server is None:
            return cpu, 0
        from hawser.lab import process_tree

        for pid in (self._server.pid, *process_tree.descendants(self._server.pid)):
            for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                cpu += int(task.read_text().split()[0]) / 1e9
        return cpu, await self._log()

    async def _log(self) -> int:
        if hasattr(self._server, "info"):
            return int(self._server.info("persistence")["aof_current_size"])
        return int(await asyncio.to_thread(self._server.ask, "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))


async def measure(url: str, server: Any, jobs: int, rounds: int) -> dict[str, Any]:
    """Least seconds of CPU a job by path, least seconds of the loop, least bytes of log a job by path."""
    from hawser.lab.app import app
    from hawser.lab.generator import noops
    from hawser.outcome import Done
    from hawser.store import Settlement, Share

    app.use_store(url)
    store = await app.store()
    meter, cpu, log, loops = Meter(server), dict.fromkeys(PATHS, 1e9), dict.fromkeys(PATHS, 1e9), []

    async def metered(path: str, work: Any) -> None:
        loops.append(loop())
        (began, written), _ = await meter.read(), await work
        ended, now_written = await meter.read()
        cpu[path], log[path] = min(cpu[path], (ended - began) / jobs), min(log[path], (now_written - written) / jobs)
        loops.append(loop())

    async def enqueue(batches: list[Any]) -> None:
        for batch in batches:
            await store.enqueue(batch)

    async def claim(runs: list[Any]) -> None:
        runs += [await store.claim([Share("default")], BATCH, "w", 300) for _ in range(jobs // BATCH)]

    async def settle(runs: list[Any]) -> None:
        for batch in runs:
            await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint) for run in batch])

    for number in range(rounds + 1):
        if number == 1:  # the first round only warms
            cpu, log = dict.fromkeys(PATHS, 1e9), dict.fromkeys(PATHS, 1e9)
        runs: list[Any] = []
        await metered("enqueue", enqueue([noops(BATCH) for _ in range(jobs // BATCH)]))
        await metered("claim", claim(runs))
        assert sum(map(len, runs)) == jobs
        await metered("settle", settle(runs))
        await enqueue([noops(BATCH) for _ in range(jobs // BATCH)])
        await drain(app, store, metered)
    await app.aclose()
    return {"cpu": cpu, "loop": min(loops), "log": log if server is not None else {}}


async def drain(app: Any, store: Any, metered: Any) -> None:
    """By a worker in this process, which is at work before the meter is read, and idle after."""
    from hawser.supervisor.embedded import embedded
    from hawser.worker.options import checked

    left, stop = (await store.stats()).ready, asyncio.Event()
    done = (await store.stats()).done + left

    async def work() -> None:
        worker = asyncio.ensure_future(embedded(app, checked(slots=BATCH), stop, spec=None))
        while (await store.stats()).done < done:
            await asyncio.sleep(0.02)
        stop.set()
        await worker

    await metered("worker", work())


@contextmanager
def place(store: str) -> Any:
    """An empty store and its server, gone in the end."""
    if store == "memory":
        yield "memory://", None
    elif store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/jobs.db", None
    elif store == "redis":
        from hawser.lab.redis_server import REDIS_SETTINGS, RedisServer

        with RedisServer(settings={**REDIS_SETTINGS, "auto-aof-rewrite-percentage": "0"}) as server:
            yield server.url, server
    else:
        from hawser.lab.cluster import Cluster
        from hawser.lab.store_under_test import SERVER_SETTINGS

        # Upkeep by the clock would come into some rounds and not into others.
        with Cluster(settings={**SERVER_SETTINGS, "autovacuum": "off", "checkpoint_timeout": "1h"}) as server:
            yield server.url, server


def one(store: str, jobs: int, rounds: int) -> dict[str, Any]:
    from hawser.worker.loop import run_loop

    with place(store) as (url, server):
        return run_loop(measure(url, server, jobs, rounds))


# All of them.


def told(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Of one store, in loops."""
    return {
        path: {
            "loops": round(cpu / found["loop"], 2),
            **({"log_bytes": round(found["log"][path], 1)} if found["log"] else {}),
        }
        for path, cpu in found["cpu"].items()
    }


def measured(stores: list[str], args: argparse.Namespace) -> tuple[Figures, dict[str, Any]]:
    """In loops, and as it was read."""
    raw = {}
    for store in stores:
        words = [sys.executable, __file__, "--measure", store, "--jobs", str(args.jobs), "--rounds", str(args.rounds)]
        said = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"})
        if said.returncode:
            raise SystemExit(f"bench-check: {store} could not be measured:\n{said.stderr[-3000:]}")
        raw[store] = json.loads(said.stdout.splitlines()[-1])
        print(f"{store}: {said.stdout.splitlines()[-1]}", file=sys.stderr, flush=True)
    return {store: told(found) for store, found in raw.items()}, raw


def spread(runs: list[tuple[Figures, dict[str, Any]]]) -> None:
    """How far runs are apart: in microseconds, in loops, in bytes of log."""
    print("| store, path | µs, run by run | apart | loops, run by run | apart | bytes of log | apart |")
    print("|" + "---|" * 7)
    for store, paths in runs[0][0].items():
        for path, figures in paths.items():
            us = [raw[store]["cpu"][path] * 1e6 for _, raw in runs]
            loops = [found[store][path]["loops"] for found, _ in runs]
            log = [found[store][path].get("log_bytes", 0.0) for found, _ in runs]
            cells = [f"{store} {path}"]
            for values, digits in ((us, 2), (loops, 1), (log if "log_bytes" in figures else [], 0)):
                cells.append(", ".join(f"{value:.{digits}f}" for value in values))
                cells.append(f"{max(values) / min(values) - 1:.1%}" if values else "")
            print(f"| {' | '.join(cells)} |")


def check(args: argparse.Namespace) -> int:
    kept = json.loads(args.kept.read_text())["stores"] if args.kept.exists() else {}
    stores = args.only.split(",")
    if args.figures is not None:
        found = json.loads(args.figures.read_text())["stores"]
    else:
        runs = [measured(stores, args) for _ in range(args.runs)]
        if args.runs > 1:
            spread(runs)
        found = runs[0][0]
        for figures, _ in runs[1:]:
            found = least(found, figures)
        for _ in range(0 if args.keep else AGAIN):
            dear = sorted({line.split()[0] for line in compared(kept, found)[0] if " kept" in line and "nothing" not in line})
            if not dear:
                break
            found = {**found, **least({each: found[each] for each in dear}, measured(dear, args)[0])}
    if args.keep:
        about = "script/bench-check --keep wrote this: loops of plain Python, and bytes of log, that a job costs on each path"
        args.kept.write_text(json.dumps({"about": about, "stores": {**kept, **found}}, indent=2) + "\n")
        print(f"kept in {args.kept}")
        return 0
    dearer, cheaper = compared(kept, found)
    for line in cheaper:
        print(f"cheaper: {line}; --keep keeps it so")
    for line in dearer:
        print(f"dearer: {line}")
    print("bench-check: " + ("got dearer" if dearer else f"held, within {WITHIN:.0%}"))
    return 1 if dearer else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(STORES), help="stores, with commas between")
    parser.add_argument("--jobs", type=int, default=8_000, help="of each path and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep what was measured")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file with the figures that are kept")
    parser.add_argument("--figures", type=Path, help="compare this file, measure nothing")
    parser.add_argument("--measure", choices=STORES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(one(args.measure, args.jobs, args.rounds)))
        return 0
    return check(args)


if __name__ == "__main__":
    sys.exit(main())
