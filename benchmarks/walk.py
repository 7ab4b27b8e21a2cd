"""The walk of one job through the code, from `enqueue` to `done`, as a debugger would see it on the event loop's thread.

    python benchmarks/walk.py [--store sqlite:////tmp/walk.db] [--list]

An embedded worker runs some jobs one by one. The shortest walk is shown: what happens once or now and then (opening the store,
reading policies) is in the others.
Counted are the distinct files of `src/hawser` in which a function was called, or a coroutine went on, and how often the next one
was in another file than the one before. Each change is counted for what it is: a call to elsewhere or the next line of what
called, which are jumps that a reader makes; a coroutine that goes on after its wait, which enters every caller again; the
claimer's look for the next job, which happens while this one is on its way; a listener that counts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import hawser
from hawser import Hawser, State
from hawser.supervisor.embedded import embedded
from hawser.worker.options import WorkerOptions

SOURCE = str(Path(hawser.__file__).parent)


class Walk:
    """The files of the calls, in order, on the thread that starts it."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.kinds: list[str] = []
        self.calls: list[str] = []
        self.names: set[str] = set()
        self._entered: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            file = code.co_filename.removeprefix(SOURCE + "/")
            self.files.append(file)
            self.names.add(code.co_qualname)
            self.kinds.append(self._kind(frame, file))
            self.calls.append(f"{file}:{code.co_firstlineno} {code.co_qualname} ({self.kinds[-1]})")

    def _kind(self, frame: FrameType, file: str) -> str:
        goes_on = frame in self._entered
        self._entered.add(frame)
        if file.startswith("telemetry/") or _has(frame, "telemetry/meter.py"):
            return "a listener that counts"
        if "Run.outcome_waits" in self.names and _has(frame, "worker/claimer.py"):
            return "the look for the next job"
        return "a coroutine that goes on" if goes_on else "a call, or the next line of the caller"

    @property
    def changes(self) -> int:
        return sum(self.by_kind.values())

    @property
    def by_kind(self) -> Counter[str]:
        pairs = zip(self.files, self.files[1:], self.kinds[1:], strict=False)
        return Counter(kind for one, other, kind in pairs if one != other)


def _has(frame: FrameType | None, file: str) -> bool:
    """Whether a function of this file is the frame's or called it."""
    while frame is not None:
        if frame.f_code.co_filename == f"{SOURCE}/{file}":
            return True
        frame = frame.f_back
    return False


async def walks(url: str, count: int = 15) -> list[Walk]:
    """One job after another; each is traced from its enqueue until its outcome was written and counted."""
    app = Hawser(store=url)
    started = asyncio.Event()

    @app.task(name="walk")
    async def step() -> None:
        started.set()

    stop, seen = asyncio.Event(), []
    worker = asyncio.ensure_future(embedded(app, WorkerOptions(slots=1), stop, spec=None))
    await _done(app, (await step.aenqueue()).id)
    for _ in range(count):
        started.clear()
        one = Walk()
        sys.setprofile(one)
        handle = await step.aenqueue()
        await started.wait()
        while "OutcomeWriter._written" not in one.names:
            await asyncio.sleep(0)
        sys.setprofile(None)
        await _done(app, handle.id)
        seen.append(one)
    stop.set()
    await worker
    await app.aclose()
    return seen


async def _done(app: Hawser, id: str) -> None:
    while (await app.aget(id)).state is not State.DONE:
        await asyncio.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the files that one job passes through.")
    parser.add_argument("--store", help="the store's URL; a new SQLite file otherwise")
    parser.add_argument("--list", action="store_true", help="show the calls")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        all_seen = asyncio.run(walks(options.store or f"sqlite:///{folder}/walk.db"))
    # What is done now and then, such as a look at the policies, falls into some of the walks.
    seen = min(all_seen, key=lambda one: one.changes)
    if options.list:
        print("\n".join(seen.calls))
    print(f"{len(set(seen.files))} files, {seen.changes} changes of file, {len(seen.calls)} calls")
    for kind, changes in seen.by_kind.most_common():
        print(f"  {changes:4} {kind}")
    for file in dict.fromkeys(seen.files):
        print(f"  {seen.files.count(file):4} {file}")


if __name__ == "__main__":
    main()
