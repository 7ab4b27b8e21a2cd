"""Healthy throughput beside poison that kills its process, and whether each poison job is dead after exactly max_attempts.

    python -m tests.drills.poison --seconds 40

Runs twice for so long: the same healthy load without poison, then with 5 % of it. Prints one JSON object; exit code 1 when a
poison job had another number of attempts, or a healthy one is dead.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hawser import NewJob, State
from tests.worker.tasks import app, memory_bomb, nap, poison

KINDS = ("raise", "os._exit", "segfault", "kill")


def healthy_done(folder: Path, seconds: float, share: float) -> tuple[int, dict[str, object], list[str]]:
    """How many healthy jobs were done in so many seconds, with this share of poison among the load."""
    url = f"sqlite:///{folder}/jobs-{share}.db?timeout=60"
    os.environ |= {"HAWSER_STORE": url, "HAWSER_TEST_JOURNAL": "/dev/null"}
    app.close()
    app.use_store(url)
    args = [sys.executable, "-m", "hawser.cli", "worker", "tests.worker.tasks:app", "--processes", "2", "--slots", "32"]
    with (folder / f"{share}.log").open("wb") as log:
        worker = subprocess.Popen(
            [*args, "--lease", "10", "--log-level", "error"], stdout=log, stderr=log, start_new_session=True
        )
    seq = healthy = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # Only healthy jobs are ever done: as many as that leave room are added, and the poison with them.
        if healthy - app.stats().done < 400:
            jobs: list[NewJob] = []
            for _ in range(200):
                seq += 1
                if share and seq % round(1 / share) == 0:
                    kind = (*KINDS, "memory")[seq // round(1 / share) % 5]
                    jobs.append(memory_bomb.job() if kind == "memory" else poison.job(kind))
                else:
                    healthy += 1
                    jobs.append(nap.job(0.25))
            app.enqueue_many(jobs)
        time.sleep(0.05)
    done = app.stats().done
    # What is left of the healthy load does not matter any more; the poison must come to its end.
    app.pause(task="nap", reason="measured")
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline and poison_left():
        time.sleep(0.5)
    worker.send_signal(signal.SIGTERM)
    worker.wait(60)
    found, wrong = check()
    found["processes_started"] = (folder / f"{share}.log").read_text().count("starting another") + 2
    return done, found, wrong


def poison_left() -> int:
    left = 0
    for task in ("poison", "memory_bomb"):
        for state in (State.READY, State.RUNNING):
            left += len(app.find(task=task, state=state, limit=1).jobs)
    return left


def check() -> tuple[dict[str, object], list[str]]:
    attempts: Counter[str] = Counter()
    wrong, dead_healthy, after = [], 0, None
    while True:
        page = app.find(after=after, limit=1000)
        for job in page.jobs:
            if job.task == "nap":
                dead_healthy += job.state is State.DEAD
            else:
                attempts[f"{job.state} after {job.attempt}"] += 1
                if (job.state, job.attempt, len(job.attempts)) != (State.DEAD, 3, 3):
                    wrong.append(f"{job.task} {job.payload} is {job.state} after {job.attempt}: {job.errors[-1:]}")
        after = page.next
        if after is None:
            break
    if dead_healthy:
        wrong.append(f"{dead_healthy} healthy jobs are dead")
    return {"poison": dict(attempts), "healthy_dead": dead_healthy}, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        clean, _, _ = healthy_done(Path(name), args.seconds, 0)
        with_poison, found, wrong = healthy_done(Path(name), args.seconds, 0.05)
        app.close()
    report = {
        "drill": "poison",
        "seconds": args.seconds,
        "healthy_per_s_without": round(clean / args.seconds, 1),
        "healthy_per_s_with_5_percent": round(with_poison / args.seconds, 1),
        "ratio": round(with_poison / clean, 3),
        **found,
        "wrong": wrong[:20],
    }
    print(json.dumps(report, indent=2))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
