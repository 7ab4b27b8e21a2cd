"""Kills and power cuts of a process that works with a journal: every job that was answered is there afterwards.

    python -m tests.drills.journal kills 300
    python -m tests.drills.journal cuts 20        as root: each cut is of a disk of its own
    python -m tests.drills.journal cuts 5 --relaxed    the same without syncs: it must lose jobs, or the drill shows nothing

Exit code 1 when an answered job is lost, or one that was settled is there as if it were not; with --relaxed when none is.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from hawser.errors import HawserError
from hawser.job import State, new_job
from hawser.lab.chaos.power import PowerCut
from hawser.outcome import Done
from hawser.store import Settlement, Share
from hawser.stores.memory.journal import JournaledStore

COMPACT_AT = 256 * 1024
"""Small, so that images are made during the drill."""

KILLS_OF_A_JOURNAL = 25
"""Then another one is begun: every round replays all jobs of those before it, and 100 of them took half an hour."""


async def work(folder: Path) -> None:
    """Enqueue, claim and settle until the end comes; say what was answered, after it was."""
    store = JournaledStore(folder, compact_at=COMPACT_AT)
    await store.open()
    await asyncio.gather(*(_loop(store, n) for n in range(8)))


async def _loop(store: JournaledStore, n: int) -> None:
    while True:
        answers = await store.enqueue([new_job(task="mail", body=b'{"n":1}') for _ in range(5)])
        _say("in", *(answer.id for answer in answers))
        runs = await store.claim([Share("default")], 3, f"w{n}", 60)
        await store.settle([Settlement(run.id, run.lease, Done()) for run in runs])
        _say("done", *(run.id for run in runs))


def _say(*words: str) -> None:
    os.write(1, f"{' '.join(words)}\n".encode())


class Told(NamedTuple):
    """What was answered."""

    accepted: set[str]
    done: set[str]


class Count(NamedTuple):
    """What was found after the end."""

    lost: int
    undone: int


def told(lines: IO[str]) -> Told:
    found = Told(set(), set())
    for line in lines:
        if line.endswith("\n"):
            word, *ids = line.split()
            (found.accepted if word == "in" else found.done).update(ids)
    return found


async def check(folder: Path, told: Told) -> Count:
    store = JournaledStore(folder, compact_at=COMPACT_AT)
    await store.open()
    try:
        jobs = {id: await store.get(id) for id in told.accepted}
    finally:
        await store.close()
    lost = sum(job is None for job in jobs.values())
    undone = sum(1 for id in told.done if (job := jobs.get(id)) is not None and job.state is not State.DONE)
    return Count(lost, undone)


def round_of(folder: Path, seconds: float, end: Callable[[subprocess.Popen[str]], None], *, relaxed: bool) -> Told:
    command = [sys.executable, "-m", "tests.drills.journal", "work", str(folder), *(["--relaxed"] if relaxed else [])]
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, text=True)
        started = time.monotonic()
        while not out.tell() and os.fstat(out.fileno()).st_size == 0 and time.monotonic() - started < 30:
            time.sleep(0.01)
        time.sleep(seconds)
        end(process)
        process.wait(30)
        out.seek(0)
        return told(out)


def kills(rounds: int) -> int:
    accepted = lost = undone = 0
    with tempfile.TemporaryDirectory(prefix="hawser-journal-") as home:
        for number in range(rounds):
            folder = Path(home, f"journal-{number // KILLS_OF_A_JOURNAL}")
            found = round_of(folder, random.uniform(0.05, 0.6), lambda process: process.kill(), relaxed=False)
            count = asyncio.run(check(folder, found))
            accepted, lost, undone = accepted + len(found.accepted), lost + count.lost, undone + count.undone
    print(f"{rounds} kills: {accepted} accepted, {lost} lost, {undone} settled and not done")
    return int(lost + undone > 0)


def cuts(rounds: int, *, relaxed: bool) -> int:
    accepted = lost = undone = 0
    with PowerCut() as disk:
        folder = disk.folder / "journal"

        def cut(process: subprocess.Popen[str]) -> None:
            # First, so that it does not believe a sync which is answered after the cut.
            process.send_signal(signal.SIGKILL)
            disk.cut()

        for _ in range(rounds):
            found = round_of(folder, random.uniform(0.3, 1.0), cut, relaxed=relaxed)
            disk.restore()
            try:
                count = asyncio.run(check(folder, found))
            except HawserError as error:
                print(f"not opened: {error}")
                count = Count(len(found.accepted), 0)
            accepted, lost, undone = accepted + len(found.accepted), lost + count.lost, undone + count.undone
    print(f"{rounds} power cuts: {accepted} accepted, {lost} lost, {undone} settled and not done")
    if relaxed and not lost + undone:
        print("without syncs it must lose jobs: the drill shows nothing")
    return int((lost + undone > 0) is not relaxed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kills", "cuts", "work"])
    parser.add_argument("number", help="how often; for work the folder")
    parser.add_argument("--relaxed", action="store_true", help="take the syncs away")
    args = parser.parse_args()
    if args.what == "work":
        if args.relaxed:
            setattr(os, "fdatasync", lambda _: None)  # noqa: B010  # the protection that is taken away
        asyncio.run(work(Path(args.number)))
        return 0
    return kills(int(args.number)) if args.what == "kills" else cuts(int(args.number), relaxed=args.relaxed)


if __name__ == "__main__":
    sys.exit(main())
