"""Faults on real worker processes under a mixed load, and a check of everything that the store and the sink say.

    python -m tests.drills.run kill --seconds 60
    python -m tests.drills.run freeze --times 100 --lease 1
    python -m tests.drills.run away --seconds 20

All of them on a SQLite file, or with `--store postgres` on a server of their own.
Prints one JSON object; exit code 1 when a promise was broken.
"""

import argparse
import json
import os
import random
import re
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from hawser import Job, State, StoreError
from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.processes import UnitFlags, WorkerUnit, kill_process, kill_supervisor, settle_late
from hawser.lab.chaos.processes import freeze as freeze_for
from tests.drills.places import Place, PostgresPlace, SqlitePlace
from tests.drills.tasks import SINK, app, mixed
from tests.worker.processes import cpu_of


def kill(units: list[WorkerUnit], seed: int, seconds: float) -> dict[str, int]:
    """Kill a worker process now and then, at times a supervisor, and at times one whose supervisor is frozen, for so long."""
    faults = {
        "supervisors_killed": (12, kill_supervisor(units)),
        "processes_killed": (70, kill_process(units)),
        "processes_killed_and_settled_too_late": (18, settle_late(units)),
    }
    return Plan(faults, seed=seed).run(seconds=seconds)


def freeze(units: list[WorkerUnit], seed: int, times: int) -> dict[str, int]:
    """Stop a whole worker, supervisor and all, for three leases, then let it go on."""
    return Plan({"frozen": (1, freeze_for(units, leases=3))}, seed=seed, every=(0.2, 1.0)).run(times=times)


def away(units: list[WorkerUnit], place: Place, seconds: float) -> dict[str, object]:
    """Cut all workers off from the store for so long; what the workers spend meanwhile, and whether all of them live on."""
    time.sleep(5)
    before = [(unit.pid, *unit.children()) for unit in units]
    done = app.stats().done
    with place.away():
        began, spent = time.monotonic(), sum(map(cpu_of, before))
        time.sleep(seconds)
        share = (sum(map(cpu_of, before)) - spent) / (time.monotonic() - began)
    back = time.monotonic()
    while done_now() <= done and time.monotonic() < back + 60:
        time.sleep(0.02)
    alive = before == [(unit.pid, *unit.children()) for unit in units]
    return {
        "seconds_away": seconds,
        "cpu_percent_of_all_workers_while_away": round(100 * share, 1),
        "seconds_until_work_goes_on": round(time.monotonic() - back, 1),
        "all_processes_lived_on": alive,
    }


def done_now() -> int:
    try:
        return app.stats().done
    except StoreError:
        return 0


class Producer(threading.Thread):
    """Enqueues at a steady rate until told to stop; keeps the ids of what was accepted."""

    def __init__(self, rate: int, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.rate, self.rng = rate, rng
        self.accepted: set[str] = set()
        self.unknown = 0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.2):
            try:
                self.accepted |= {handle.id for handle in app.enqueue_many(mixed(self.rate // 5, self.rng))}
            except Exception as error:
                # A frozen worker may hold the file's lock: then nothing was accepted.
                self.unknown += 1
                print(f"enqueue: {error}", file=sys.stderr)


def check(accepted: set[str], sink: Path, place: Place) -> tuple[dict[str, object], list[str]]:
    jobs: dict[str, Job] = {}
    after = None
    while True:
        page = app.find(after=after, limit=1000)
        jobs |= {job.id: job for job in page.jobs}
        after = page.next
        if after is None:
            break
    con = sqlite3.connect(sink)
    effects = dict(con.execute("select job, again from effect").fetchall())
    refused = con.execute("select count(*) from refused").fetchone()[0]
    done = {id for id, job in jobs.items() if job.state is State.DONE}
    wrong = []
    if lost := accepted - jobs.keys():
        wrong.append(f"lost: {len(lost)}")
    if stuck := [id for id, job in jobs.items() if not job.state.finished]:
        wrong.append(f"not finished: {len(stuck)}")
    if missing := done - effects.keys():
        wrong.append(f"done without their effect: {len(missing)}")
    for job in jobs.values():
        wrong += faults_of(job)
    found = {
        "accepted": len(accepted),
        "done": len(done),
        "dead": sum(job.state is State.DEAD for job in jobs.values()),
        "lost": len(lost),
        "attempts_lost": sum(job.crashes for job in jobs.values()),
        "jobs_started_more_than_once": sum(
            len(job.attempts) > 1 for job in jobs.values() if job.task not in ("poison", "flapping")
        ),
        "effects_tried_again_and_deduplicated": sum(effects.values()),
        "effects_of_stale_runs_refused_by_the_sink": refused,
        "stale_writes_refused": sum(place.stale_writes()),
    }
    return found, wrong


def faults_of(job: Job) -> list[str]:
    wrong = []
    if job.attempt > job.max_attempts:
        wrong.append(f"{job.id} was started {job.attempt} times of {job.max_attempts}")
    if job.task == "poison" and (job.state is not State.DEAD or job.attempt != 3):
        wrong.append(f"poison {job.id} is {job.state} after {job.attempt}")
    if job.task != "poison" and job.state is State.DEAD:
        wrong.append(f"healthy {job.id} is dead: {job.errors[-1]}")
    for first, second in pairwise(sorted(job.attempts, key=lambda attempt: attempt.lease)):
        if first.ended_at is None or second.started_at < first.ended_at:
            wrong.append(f"{job.id} has overlapping leases {first.lease} and {second.lease}")
    return wrong


def play(args: argparse.Namespace, units: list[WorkerUnit], place: Place) -> Mapping[str, object]:
    match args.drill:
        case "kill":
            return kill(units, args.seed, args.seconds or 60)
        case "freeze":
            return freeze(units, args.seed, args.times)
        case _:
            return away(units, place, args.seconds or 20)


def amiss(drill: str, told: Mapping[str, object], found: Mapping[str, object]) -> list[str]:
    """What a drill must show besides, or it has proven nothing."""
    wrong = []
    if drill == "kill" and not found["stale_writes_refused"]:
        wrong.append("no stale write was tried: run it for longer")
    if drill == "away":
        if not told["all_processes_lived_on"]:
            wrong.append("a worker process has ended")
        if float(str(told["cpu_percent_of_all_workers_while_away"])) >= 20:
            wrong.append("the workers were busy while the store was away")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drill", choices=["kill", "freeze", "away"])
    parser.add_argument("--seconds", type=float, help="how long  [default: 60, away: 20]")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--rate", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Away: the calls must give up and be tried again meanwhile, not just wait.
        timeout = 3 if args.drill == "away" else 60
        place: Place = PostgresPlace() if args.store == "postgres" else SqlitePlace(folder)
        url, sink = place.url(timeout), folder / "sink.db"
        con = sqlite3.connect(sink)
        con.execute("pragma journal_mode = wal")
        con.executescript(SINK)
        con.close()
        os.environ |= {"HAWSER_STORE": url, "HAWSER_DRILL_SINK": str(sink)}
        app.use_store(url)
        names = [f"unit{number}" for number in range(3 if args.drill == "freeze" else 2)]
        units = [WorkerUnit("tests.drills.tasks:app", url, folder, name, flags=UnitFlags(lease=args.lease)) for name in names]
        for unit in units:
            unit.start()
        producer = Producer(args.rate, random.Random(args.seed + 1))
        producer.start()
        began = time.monotonic()
        try:
            told = play(args, units, place)
            producer.stop.set()
            producer.join(30)
            drained = time.monotonic() + 180
            while time.monotonic() < drained:
                stats = app.stats()
                if not (stats.ready or stats.scheduled or stats.retrying or stats.running):
                    break
                time.sleep(0.2)
        finally:
            for unit in units:
                unit.end()
        found, wrong = check(producer.accepted, sink, place)
        logs = "".join(unit.said() for unit in units)
        found["runs_ended_on_waking"] = logs.count("its lease is gone")
        found["stale_writes_refused"] = sum(map(int, re.findall(r"(\d+) outcomes were refused", logs)))
        wrong += amiss(args.drill, told, found)
        report = {
            "drill": args.drill,
            "store": args.store,
            "seed": args.seed,
            "seconds": round(time.monotonic() - began),
            "enqueues_refused": producer.unknown,
            **told,
            **found,
            "wrong": wrong[:20],
        }
        print(json.dumps(report, indent=2))
        if "Traceback" in logs:
            print(logs[logs.index("Traceback") - 500 :][:4000], file=sys.stderr)
        app.close()
        place.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
