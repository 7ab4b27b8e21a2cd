"""Many processes on one store, some of them killed at any moment."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from hawser.job import State
from hawser.store import Filter
from hawser.stores import make_store
from hawser.value.ids import new_id

PROCESSES, JOBS = 8, 2_000


def crowd(url: str, tmp_path: Path) -> None:
    """Eight processes share a store, and some of them are killed: nothing is lost, nothing is settled twice."""
    journal = tmp_path / "journal"
    journal.touch()
    rng = random.Random(1)
    started = 0

    def start(name: str) -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        args = [
            sys.executable,
            "-m",
            "tests.stores.drainer",
            url,
            f"{name}-{started}",
            str(tmp_path / f"{name}.ids"),
            str(journal),
        ]
        with (tmp_path / f"{name}-{started}.err").open("wb") as errors:
            return subprocess.Popen(args, stderr=errors, cwd=Path(__file__).parents[2])

    for i in range(PROCESSES):
        (tmp_path / f"p{i}.ids").write_text("\n".join(new_id() for _ in range(JOBS)))
    running = {f"p{i}": start(f"p{i}") for i in range(PROCESSES)}
    killed = 0
    end = time.monotonic() + 120
    try:
        while (done := asyncio.run(finished(url, journal))) < PROCESSES * JOBS:
            assert time.monotonic() < end, f"{done} of {PROCESSES * JOBS} were done in time"
            for name, process in running.items():
                assert process.poll() is None, (tmp_path / f"{name}-{started}.err").read_text()
            if killed < 3 * PROCESSES // 4:
                for name in rng.sample(list(running), PROCESSES // 4):
                    running[name].send_signal(signal.SIGKILL)
                    running[name].wait(30)
                    killed += 1
                    running[name] = start(name)
            time.sleep(rng.uniform(0.3, 0.6))
    finally:
        for process in running.values():
            process.kill()
            process.wait(30)

    assert killed >= PROCESSES // 4
    ids = {id for i in range(PROCESSES) for id in (tmp_path / f"p{i}.ids").read_text().split()}
    jobs = asyncio.run(all_jobs(url))
    assert {job.id for job in jobs} == ids, "lost or unexpected jobs"
    assert all(job.state is State.DONE for job in jobs)
    said = [tuple(line.split()) for line in journal.read_text().splitlines()]
    settled = Counter(id for word, id in said if word == "settled")
    assert max(settled.values()) == 1, "a job was settled twice"
    # What was killed between a commit and its record is missing from the journal, and only that.
    assert len(ids) - len(settled) <= killed * 60
    assert not any(path.read_bytes() for path in tmp_path.glob("*.err")), "a process saw an error"


async def finished(url: str, journal: Path) -> int:
    if url.startswith("sqlite") and not Path(url.removeprefix("sqlite:///")).exists():
        return 0
    store = make_store(url)
    try:
        return (await store.stats()).done
    finally:
        await store.close()


async def all_jobs(url: str):
    store = make_store(url)
    jobs, after = [], None
    while True:
        page = await store.find(Filter(), after, 1000)
        jobs += page.jobs
        after = page.next
        if after is None:
            await store.close()
            return jobs
