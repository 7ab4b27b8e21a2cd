"""Peers beside Hawser, each on the kind of store that it is for: drain, steady, enqueue, pickup, idle, and what kill -9 costs.

    python benchmarks/peers.py install --peers /tmp/peers         a virtual environment for each, on request
    python benchmarks/peers.py install oban --peers /tmp/peers --with python3.12
    python benchmarks/peers.py all --peers /tmp/peers
    python benchmarks/peers.py pgqueuer taskiq --jobs 20000 --peers /tmp/peers
    python benchmarks/peers.py taskiq redis://…                   on an empty server that is there; else one of their own

Servers are those of the lab: PostgreSQL with its durable defaults, Valkey or Redis with appendfsync always; SQLite is a new
file. Each peer has two worker processes with the best settings found (`peer_roles.py` has them, and what is changed for
safety). All jobs note their end in the same way, so that rates do not depend on anyone's tables. Peers take turns; what cannot be
installed or does not work is named and left out. Oban needs Python 3.12, which `--with` names. Prints each finding as JSON, in
the end one table.

drain: a backlog, from the first job that ended to the last. steady: enqueued in bulk and drained at once, from the first
enqueue to the last end. pickup: enqueue to end, single jobs at 50 a second. idle: CPU and resident memory of both worker
processes. kill -9: both workers are killed with a quarter of the jobs of 100 ms done, and started again. Then it is counted
what nobody has run 20 s after the last one that was, and what ran twice. With their defaults some peers look for the dead later
than that: chancy after 90 s, dramatiq 60 s, docket and arq 5 minutes, taskiq and rq 10 minutes; celery acknowledges before it
runs a job, procrastinate leaves it to the user, and huey has forgotten the job. `safe` has the shortest times and the strictest
settings of each.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from peer_roles import NOTE, PEERS

from hawser.lab import process_tree
from hawser.lab.cluster import Cluster
from hawser.lab.redis_server import RedisServer
from hawser.lab.store_under_test import SERVER_SETTINGS, WARM

ROLES = str(Path(__file__).with_name("peer_roles.py"))
STORE = {
    **dict.fromkeys(("hawser-postgres", "pgqueuer", "procrastinate", "oban", "chancy"), "postgres"),
    **dict.fromkeys(("hawser-redis", "taskiq", "dramatiq", "docket", "arq", "celery", "rq"), "redis"),
    **dict.fromkeys(("hawser-sqlite", "huey", "litequeue"), "sqlite"),
}
MOST = {"hawser-postgres": 100_000, "hawser-redis": 100_000, "hawser-sqlite": 100_000, "pgqueuer": 50_000, "rq": 500}
USUAL = 3_000
SINGLES, PICKUPS, PICKUP_RATE = 300, 150, 50
KILLED_JOBS, KILLED_MS = 200, 100
WORKERS = 2
IDLE_S = 5.0
STALLED_S = 60.0
UNTIL_LOST_S = 20.0


class Notes:
    """What jobs wrote down of themselves."""

    def __init__(self, folder):
        self.folder = folder

    def read(self):
        found = []
        for path in self.folder.iterdir():
            text = path.read_bytes()
            found += NOTE.iter_unpack(text[: len(text) // NOTE.size * NOTE.size])
        return found

    def count(self):
        return sum(path.stat().st_size for path in self.folder.iterdir()) // NOTE.size


class Contender:
    """One peer on one empty store."""

    def __init__(self, name, url, folder, python, server):
        self.name, self.url, self.server = name, url, server
        self.python = python
        self.notes = Notes(folder)
        self.sent = 0
        benchmarks = str(Path(__file__).parent)
        self.environ = {
            **os.environ,
            "PEER_NOTES": str(folder),
            "PYTHONPATH": benchmarks + ":" + os.environ.get("PYTHONPATH", ""),
        }

    def start(self, what, *words):
        command = [self.python, ROLES, what, self.name, self.url, *map(str, words)]
        log = open(f"{self.notes.folder}-{self.name}.log", "ab")  # noqa: SIM115  # the process keeps it
        out = subprocess.PIPE if what != "work" else log
        return subprocess.Popen(
            command,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
            cwd=Path(ROLES).parent,
        )

    def ask(self, what, *words, wait=True):
        process = self.start(what, *words)
        return self.answer(process) if wait else process

    def answer(self, process):
        said, _ = process.communicate(timeout=300)
        if process.returncode:
            raise RuntimeError(f"{self.name} did not work; the end of what it said:\n{self.last_words()}")
        return json.loads(said.splitlines()[-1])["seconds"]

    def last_words(self):
        return Path(f"{self.notes.folder}-{self.name}.log").read_text(errors="replace")[-1_500:]

    def enqueue(self, what, count, rate=0, ms=0, *, safe=False, wait=True):
        first, self.sent = self.sent, self.sent + count
        return self.ask(what, first, count, rate, ms, *(["--safe"] if safe else []), wait=wait)

    @contextmanager
    def workers(self, *, safe=False):
        crew = [self.start("work", *(["--safe"] if safe else [])) for _ in range(WORKERS)]
        try:
            yield crew
        finally:
            kill(crew)

    def until(self, count, within=STALLED_S):
        """Until so many notes are there, or none came for so long."""
        last, moved = -1, time.monotonic()
        while (now := self.notes.count()) < count:
            if now != last:
                last, moved = now, time.monotonic()
            if time.monotonic() - moved > within:
                return False
            time.sleep(0.02)
        return True

    def must(self, count):
        if not self.until(count):
            raise RuntimeError(f"{self.name} did {self.notes.count()} of {count} jobs and no more; it said:\n{self.last_words()}")


def family(crew):
    return [pid for worker in crew for pid in (worker.pid, *process_tree.descendants(worker.pid))]


def kill(crew):
    """With -9, all of their processes."""
    process_tree.send(family(crew), signal.SIGKILL)
    for worker in crew:
        worker.wait()


def spent(pids):
    """Seconds of CPU, and megabytes that are resident."""
    cpu = size = 0.0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            size += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return cpu, size


def speed(peer, jobs):
    """Enqueue, drain, steady, pickup, idle."""
    peer.ask("setup")
    took = peer.enqueue("bulk", jobs)
    singly = peer.enqueue("singles", SINGLES)
    servers = [] if peer.server is None else [peer.server.pid, *process_tree.descendants(peer.server.pid)]
    with peer.workers() as crew:
        peer.must(1)
        before, began = spent(family(crew))[0], peer.notes.count()
        server = spent(servers)[0]
        peer.must(peer.sent)
        # Of what was left to do when the meter was read: with few jobs that may be nothing.
        left = peer.sent - began
        worker_us = (spent(family(crew))[0] - before) / left * 1e6 if left else None
        servers = [] if peer.server is None else [peer.server.pid, *process_tree.descendants(peer.server.pid)]
        server_us = (spent(servers)[0] - server) / left * 1e6 if left and servers else None
        ends = sorted(ended for _, _, ended in peer.notes.read())
        drain = (len(ends) - 1) / max(0.001, ends[-1] - ends[0])
        seen = peer.sent
        peer.answer(peer.enqueue("bulk", jobs, wait=False))
        peer.must(peer.sent)
        steady = [note for note in peer.notes.read() if note[0] >= seen]
        steady_rate = len(steady) / (max(ended for _, _, ended in steady) - min(sent for _, sent, _ in steady))
        seen = peer.sent
        peer.enqueue("singles", PICKUPS, PICKUP_RATE)
        peer.must(peer.sent)
        waits = sorted((ended - sent) * 1e3 for number, sent, ended in peer.notes.read() if number >= seen)
        time.sleep(1)
        (before, _), began = spent(family(crew)), time.monotonic()
        time.sleep(IDLE_S)
        after, size = spent(family(crew))
        idle = (after - before) / (time.monotonic() - began) * 100
    return {
        "enqueue_1_per_s": round(SINGLES / singly),
        "enqueue_bulk_per_s": round(jobs / took),
        "drain_per_s": round(drain),
        "worker_us": worker_us and round(worker_us),
        "server_us": server_us and round(server_us),
        "steady_per_s": round(steady_rate),
        "pickup_p50_ms": round(statistics.median(waits), 1),
        "pickup_p99_ms": round(waits[int(len(waits) * 0.99)], 1),
        "idle_cpu_percent": round(idle, 2),
        "rss_mb": round(size),
    }


def killed(peer, *, safe):
    """What is not run again, or is run twice, when both workers die."""
    peer.ask("setup")
    peer.enqueue("bulk", KILLED_JOBS, ms=KILLED_MS, safe=safe)
    with peer.workers(safe=safe):
        peer.must(KILLED_JOBS // 4)
    with peer.workers(safe=safe):
        peer.until(KILLED_JOBS, UNTIL_LOST_S)
        # One that is run a second time may hide one that is not there.
        began = time.monotonic()
        while time.monotonic() - began < UNTIL_LOST_S and len({number for number, _, _ in peer.notes.read()}) < KILLED_JOBS:
            time.sleep(0.2)
    seen = [number for number, _, _ in peer.notes.read()]
    return {"missing": KILLED_JOBS - len(set(seen)), "twice": len(seen) - len(set(seen))}


@contextmanager
def contender(name, python, place, folder, number):
    """On an empty store."""
    url, server = place
    kind = STORE[name]
    notes = folder / f"notes-{number}"
    notes.mkdir()
    if kind == "sqlite":
        path = f"{folder}/{number}.db"
        url = f"sqlite:///{path}" if name.startswith("hawser") else path
        yield Contender(name, url, notes, python, None)
        return
    if kind == "redis":
        import redis

        with redis.Redis.from_url(url) as client:
            if server is None and client.dbsize():
                raise SystemExit("the Redis server that is named must be empty: all that is in it will be removed")
            client.flushall()
            try:
                yield Contender(name, url, notes, python, server)
            finally:
                client.flushall()
        return
    database = f"peer_{os.getpid()}_{number}"
    asyncio.run(told(url, f"create database {database}"))
    try:
        yield Contender(name, urlunsplit(urlsplit(url)._replace(path=f"/{database}")), notes, python, server)
    finally:
        asyncio.run(told(url, f"drop database {database} with (force)"))


async def told(url, statement):
    con = await asyncpg.connect(url)
    await con.execute(statement)
    await con.close()


def interpreter(peer, peers):
    """Each peer has an environment of its own: what one depends on may exclude another. Hawser has this one."""
    return sys.executable if peer.startswith("hawser") else str(Path(peers) / peer / "bin" / "python")


def version(python, peer):
    """None when it is not installed."""
    code = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    with suppress(OSError, subprocess.CalledProcessError):
        command = [python, "-c", code, PEERS[peer].packages[0]]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None


@contextmanager
def places(kinds, url):
    with ExitStack() as ending:
        found = {"sqlite": (None, None)}
        if url is not None:
            found |= dict.fromkeys(kinds, (url, None))
        elif "postgres" in kinds:
            cluster = ending.enter_context(Cluster(settings=SERVER_SETTINGS))
            cluster.warm(WARM)
            found["postgres"] = (cluster.url, cluster)
        if url is None and "redis" in kinds:
            server = ending.enter_context(RedisServer())
            found["redis"] = (f"redis://127.0.0.1:{server.port}/0", server)
        yield found


def measure(names, args):
    rows, number = [], 0
    with places({STORE[name] for name in names}, args.url) as place, tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        for name in names:
            python = interpreter(name, args.peers)
            row = {"peer": name, "version": version(python, name), "store": STORE[name], "load": os.getloadavg()[0]}
            row["jobs"] = args.jobs or MOST.get(name, USUAL)
            if row["version"] is None:
                row["left_out"] = "is not installed"
            for part in args.parts.split(",") if row["version"] else ():
                number += 1
                try:
                    with contender(name, python, place[STORE[name]], Path(scratch), number) as peer:
                        row |= speed(peer, row["jobs"]) if part == "speed" else {part: killed(peer, safe=part == "safe")}
                except (RuntimeError, OSError, subprocess.SubprocessError, ValueError, ZeroDivisionError) as error:
                    row.setdefault("left_out", {})[part] = str(error)[-600:]
            rows.append(row)
            print(json.dumps(row), flush=True)
    print(table(rows))


COLUMNS = {
    "enqueue, one by one / bulk": ("enqueue_1_per_s", "enqueue_bulk_per_s"),
    "drain": ("drain_per_s",),
    "worker, server µs": ("worker_us", "server_us"),
    "steady": ("steady_per_s",),
    "pickup p50, p99 ms": ("pickup_p50_ms", "pickup_p99_ms"),
    "idle CPU %, MB": ("idle_cpu_percent", "rss_mb"),
}


def table(rows):
    """In Markdown."""
    names = [
        "peer",
        "store",
        "jobs",
        *COLUMNS,
        f"kill -9: not run within {UNTIL_LOST_S:g} s, and run twice, of {KILLED_JOBS}",
        "the same, safe",
    ]
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [f"{row['peer']} {row['version'] or ''}", row["store"], f"{row['jobs']:,}"]
        cells += [", ".join("-" if row.get(key) is None else f"{row[key]:,}" for key in keys) for keys in COLUMNS.values()]
        cells += [
            ", ".join(str(row[part][key]) for key in ("missing", "twice")) if part in row else "-" for part in ("kill", "safe")
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def install(names, peers, python):
    for name in names:
        if name.startswith("hawser"):
            continue
        subprocess.run([python, "-m", "venv", "--clear", f"{peers}/{name}"], check=True)
        packages = {*PEERS[name].packages, "uvloop"} - {"psycopg"}
        packages |= {"psycopg[binary,pool]"} if STORE[name] == "postgres" else set()
        done = subprocess.run([f"{peers}/{name}/bin/pip", "install", "-q", *sorted(packages)], check=False)
        print(f"{name}: {'installed' if not done.returncode else 'cannot be installed'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help=f"all, or some of: {', '.join(PEERS)}; install before them; a URL")
    parser.add_argument("--peers", default="/tmp/peers", help="the folder with an environment for each peer")
    parser.add_argument("--with", dest="python", default=sys.executable, help="the interpreter that `install` makes them with")
    parser.add_argument("--jobs", type=int, default=0, help=f"of each phase; by default {USUAL:,}, and more for the fast")
    parser.add_argument("--parts", default="speed,kill,safe", help="what is measured")
    parser.add_argument("--scratch", default=None, help="a folder for files and notes")
    args = parser.parse_args()
    args.url = next((word for word in args.names if "://" in word), None)
    names = [word for word in args.names if "://" not in word and word != "install"]
    names = list(PEERS) if names in ([], ["all"]) else names
    if unknown := set(names) - PEERS.keys():
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    if "install" in args.names:
        install(names, args.peers, args.python)
        return
    measure(names, args)


if __name__ == "__main__":
    sys.exit(main())
