"""Two source trees side by side: CPU and log per job, drain and steady rate, alternating in one run.

    git worktree add /tmp/before 8e0abdb
    python benchmarks/compare.py /tmp/before . --store sqlite --slots 400
    python benchmarks/compare.py /tmp/before . --store postgres --processes 2 --slots 400 --rounds 7

Each round runs both trees, in turns first, each on a new store: a backlog is drained, then as many jobs are enqueued and
drained at once. CPU is that of the worker's processes, supervisor included, and of the server's; it is read from /proc, so a busy
machine changes it far less than a rate. `log` is what the PostgreSQL server wrote to its log. The last line of each figure is the
median of the rounds' ratios, new to old: below 1 is cheaper, or slower.

With --embedded there is no supervisor: the worker, its producer and its maintenance thread are one process.
Both trees run with the interpreter and the packages of this command; a tree is the folder that has `src/hawser`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

BATCH: Final = 400
"""Jobs in one enqueue."""

TICKS: Final = os.sysconf("SC_CLK_TCK")


# One tree, on one new store. Only names that all releases have are used here.


def cpu_of(root: int) -> float:
    """Seconds of CPU that a process and those below it have spent."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], spent[int(entry.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
    family, size = {root}, 0
    while len(family) > size:
        size = len(family)
        family |= {pid for pid, parent in parents.items() if parent in family}
    return sum(spent.get(pid, 0.0) for pid in family)


class Meter:
    """What some jobs cost, from its making on."""

    def __init__(self, worker: int, server: int | None) -> None:
        self._worker = worker
        self._server = server
        self._began = time.perf_counter()
        self._before = self._read()

    def _read(self) -> tuple[float, float]:
        return cpu_of(self._worker), 0.0 if self._server is None else cpu_of(self._server)

    def figures(self, phase: str, jobs: int) -> dict[str, float]:
        worker, server = (after - before for after, before in zip(self._read(), self._before, strict=True))
        found = {f"{phase}_per_s": jobs / (time.perf_counter() - self._began), f"{phase}_worker_us": worker / jobs * 1e6}
        return found | ({f"{phase}_server_us": server / jobs * 1e6} if self._server is not None else {})


async def one(args: argparse.Namespace) -> dict[str, float]:
    """Under a supervisor, as `hawser worker` runs."""
    from hawser.lab.generator import noops
    from hawser.lab.load import done_count, fill, produce, quiet, wait_done, workers
    from hawser.stores import make_store

    store = make_store(args.url)
    await store.open()
    try:
        with tempfile.TemporaryDirectory() as folder:
            await fill(store, args.jobs, quiet)
            how = {"processes": args.processes, "slots": args.slots, "claim_batch": max(200, args.slots)}
            with workers(args.url, Path(folder), **how) as crew:
                # Starting processes is no part of the cost.
                await wait_done(store, 1, crew, quiet, "")
                started, meter = await done_count(store), Meter(crew.process.pid, args.server)
                await wait_done(store, args.jobs, crew, quiet, "")
                found = meter.figures("drain", args.jobs - started)
                stream, meter = noops(args.jobs), Meter(crew.process.pid, args.server)
                producing = asyncio.ensure_future(produce(store, stream, BATCH, quiet, ""))
                await wait_done(store, 2 * args.jobs, crew, quiet, "")
                await producing
                return found | meter.figures("steady", args.jobs)
    finally:
        await store.close()


async def one_embedded(args: argparse.Namespace) -> dict[str, float]:
    """All in this process."""
    from hawser.lab.app import app
    from hawser.lab.generator import noops
    from hawser.lab.load import done_count, fill, produce, quiet
    from hawser.worker.options import checked

    embedded = _either("embedded", "hawser.supervisor.embedded", "hawser.worker.worker")
    app.use_store(args.url)
    store = await app.store()
    await fill(store, args.jobs, quiet)

    async def done(count: int) -> None:
        while await done_count(store) < count:
            await asyncio.sleep(0.05)

    stop, meter = asyncio.Event(), Meter(os.getpid(), args.server)
    worker = asyncio.ensure_future(embedded(app, checked(slots=args.slots), stop, spec=None))
    await done(args.jobs)
    found = meter.figures("drain", args.jobs)
    stream, meter = noops(args.jobs), Meter(os.getpid(), args.server)
    await produce(store, stream, BATCH, quiet, "")
    await done(2 * args.jobs)
    found |= meter.figures("steady", args.jobs)
    stop.set()
    await worker
    await app.aclose()
    return found


def _either(name: str, *modules: str) -> Any:
    """What one of the modules has: names have moved between releases."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise SystemExit(f"this tree has no {name}")


# Both, alternating.


def measured(tree: Path, args: argparse.Namespace, folder: str, cluster: Any, number: int) -> dict[str, float]:
    """One tree on a new store, in a process of its own."""
    url = f"sqlite:///{folder}/{number}.db" if cluster is None else f"{cluster.url}&schema=compare_{number}"
    again = [sys.executable, __file__, "--url", url, "--jobs", args.jobs, "--processes", args.processes, "--slots", args.slots]
    again += ["--embedded"] if args.embedded else []
    again += ["--server", cluster.pid] if cluster is not None else []
    environ = {**os.environ, "PYTHONPATH": str(tree.resolve() / "src")}
    log = _log_written(cluster)
    said = subprocess.run([str(word) for word in again], env=environ, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(f"{tree}: {said.stderr[-3000:]}")
    found = json.loads(said.stdout.splitlines()[-1])
    if cluster is not None:
        found["log_bytes"] = (_log_written(cluster) - log) / args.jobs / 2
    return found


def _log_written(cluster: Any) -> int:
    if cluster is None:
        return 0

    async def ask() -> int:
        import asyncpg

        con = await asyncpg.connect(cluster.url)
        try:
            return int(await con.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))
        finally:
            await con.close()

    return asyncio.run(ask())


def compare(args: argparse.Namespace) -> None:
    place: Any = nullcontext()
    if args.store == "postgres":
        from hawser.lab.cluster import Cluster
        from hawser.lab.store_under_test import SERVER_SETTINGS, WARM

        place = Cluster(settings=SERVER_SETTINGS)
    with tempfile.TemporaryDirectory() as folder, place as cluster:
        if cluster is not None:
            cluster.warm(WARM)
        rounds: list[dict[str, dict[str, float]]] = []
        for number in range(args.rounds + args.warm):
            order = [("old", args.old), ("new", args.new)][:: 1 if number % 2 else -1]
            seen = {name: measured(tree, args, folder, cluster, 2 * number + at) for at, (name, tree) in enumerate(order)}
            if number >= args.warm:
                rounds.append(seen)
    for figure in rounds[0]["old"]:
        ratios = [seen["new"][figure] / seen["old"][figure] for seen in rounds if seen["old"][figure]]
        for name in ("old", "new"):
            values = [seen[name][figure] for seen in rounds]
            shown = " ".join(f"{value:9.1f}" for value in values)
            print(f"{figure:16} {name}  {shown}   median {statistics.median(values):9.1f}")
        if ratios:
            shown = " ".join(f"{ratio:9.3f}" for ratio in ratios)
            print(f"{figure:16} ratio{shown}   median {statistics.median(ratios):9.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--slots", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=40_000, help="of each phase")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=1, help="rounds before the first that counts")
    parser.add_argument("--embedded", action="store_true", help="without a supervisor")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--server", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.url:
        run_loop = _either("run_loop", "hawser.worker.loop", "hawser.worker.worker")
        print(json.dumps(run_loop(one_embedded(args) if args.embedded else one(args))))
    elif args.new is None:
        parser.error("name two trees: the old one and the new one")
    else:
        compare(args)


if __name__ == "__main__":
    main()
