"""The app that bench and experiments run: a job that does nothing, and the classes of the generator.

What its processes see goes where the environment says: how long claims took, and, under faults, the journal and the sink.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from hawser.app import Hawser
from hawser.backoff import Fixed
from hawser.breaker import Breaker
from hawser.context import Context
from hawser.lab import dependency
from hawser.lab.generator import HEALTHY_JOB_ATTEMPTS
from hawser.lab.journal import Journal, JournalRun, What
from hawser.lab.sink import Sink
from hawser.schedule.rule import Every
from hawser.store import Settled, Settlement
from hawser.telemetry.events import ClaimedBatch, Events, Listeners, SettledBatch

FOLDER: Final = "HAWSER_LAB_FOLDER"
"""The environment variable that says where measurements go."""

WITNESS: Final = "HAWSER_LAB_WITNESS"
"""The environment variable that names a folder for `journal` and `sink`; without it single jobs are not recorded."""

LONG_VARIABLE: Final = "HAWSER_LAB_LONG"
"""The environment variable that says how many seconds the class longer than the lease takes."""

STALL: Final = "HAWSER_LAB_STALL"
"""The environment variable that says how probable it is, and for how many seconds, that a whole worker stands still right
before it writes outcomes: "0.002,6"."""

BREAKER: Final = "HAWSER_LAB_BREAKER"
"""The environment variable that has the breaker of the class that needs the dependency, as JSON."""

TASKS: Final = "HAWSER_LAB_TASKS"
"""The environment variable that says how many more tasks there are that do nothing: `noop0`, `noop1` and so on."""

HEALED: Final = "healed"
"""The file in the witness's folder from which on no process freezes any more."""

TOO_MUCH: Final = 2**43
"""More bytes than any machine has."""

RETRY_IN_200_MS: Final = Fixed(every=0.2)


class ClaimLog(Events):
    """Appends each claim to a file of this process: size and seconds, one line, one write."""

    def __init__(self, folder: str) -> None:
        self._fd = os.open(f"{folder}/claims-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def claimed(self, batch: ClaimedBatch) -> None:
        os.write(self._fd, msgspec.json.encode((len(batch.jobs), batch.seconds)) + b"\n")


class Witness(Events):
    """Writes what a worker process claims and settles into the journal."""

    def claimed(self, batch: ClaimedBatch) -> None:
        _journal().write(What.CLAIMED, [JournalRun(job.id, job.lease, job.attempt) for job in batch.jobs])

    def settling(self, settlements: Sequence[Settlement]) -> None:
        if STALL in os.environ:
            chance, seconds = os.environ[STALL].split(",")
            healed = (Path(os.environ[WITNESS]) / HEALED).exists()
            if not healed and random.random() < float(chance):  # noqa: S311  # no secret
                _journal().write(What.FAULT, note="stall before a settlement")
                _stand_still(seconds)
        _journal().write(What.SETTLE, [JournalRun(each.id, each.lease) for each in settlements])

    def settled(self, batch: SettledBatch) -> None:
        told: dict[tuple[What, str], list[JournalRun]] = defaultdict(list)
        for each, answer in zip(batch.settlements, batch.answers, strict=True):
            told[_ANSWERS[answer.said], answer.state or ""].append(JournalRun(each.id, each.lease))
        for (what, outcome), runs in told.items():
            _journal().write(what, runs, outcome)


def _stand_still(seconds: str) -> None:
    """Freeze this process with its supervisor and its siblings; a process outside of them lets them go on."""
    group = os.getpgrp()
    thaw = ["sh", "-c", f"sleep {float(seconds)}; kill -s CONT -- -{group}"]
    subprocess.Popen(thaw, start_new_session=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    os.killpg(group, signal.SIGSTOP)


_ANSWERS: Final = {Settled.SETTLED: What.SETTLED, Settled.REPEATED: What.REPEATED, Settled.LOST: What.STALE}


@cache
def _journal() -> Journal:
    return Journal(Path(os.environ[WITNESS]) / "journal")


@cache
def _sink() -> Sink:
    return Sink(Path(os.environ[WITNESS]) / "sink")


def _seen(ctx: Context) -> AbstractContextManager[None]:
    """Have the start and the end of a run written down, if there is a witness: asked once, for a look at
    the environment costs a microsecond or two."""
    return _witnessed(ctx) if _has_witness() else _UNSEEN


_UNSEEN: Final = nullcontext()


@cache
def _has_witness() -> bool:
    return WITNESS in os.environ


@contextmanager
def _witnessed(ctx: Context) -> Iterator[None]:
    """The start and the end of a run, and its effect, taken once the handler is through."""
    run = JournalRun(ctx.job.id, ctx.lease, ctx.attempt)
    _journal().write(What.START, [run])
    try:
        yield
        taken = _sink().apply(run.id, run.lease)
        _journal().write(What.EFFECT if taken else What.STALE_EFFECT, [run])
    finally:
        _journal().write(What.END, [run])


def _listeners() -> Events:
    found: list[Events] = []
    if folder := os.environ.get(FOLDER):
        found.append(ClaimLog(folder))
    if WITNESS in os.environ:
        found.append(Witness())
    return Listeners(*found)


app = Hawser()
app.events = _listeners()


@app.task
async def noop(seq: int, to: str) -> None:
    """What a queue costs when the work costs nothing."""


for _number in range(int(os.environ.get(TASKS, "0"))):
    app.task(name=f"noop{_number}")(noop.fn)


@app.task(backoff=RETRY_IN_200_MS)
async def fast(ctx: Context, seq: int, ms: int) -> None:
    with _seen(ctx):
        await asyncio.sleep(ms / 1000)


@app.task(backoff=RETRY_IN_200_MS)
async def slow(ctx: Context, seq: int, ms: int) -> None:
    with _seen(ctx):
        await asyncio.sleep(ms / 1000)


@app.task(max_attempts=1)
async def once(ctx: Context, seq: int, ms: int) -> None:
    """Has one attempt: a kill after its start makes it dead, and nothing else may."""
    with _seen(ctx):
        await asyncio.sleep(ms / 1000)


@app.task(backoff=RETRY_IN_200_MS)
def longer_than_the_lease(ctx: Context, seq: int) -> None:
    """In a thread, which cannot be stopped: it goes on after its lease is lost."""
    with _seen(ctx):
        time.sleep(float(os.environ.get(LONG_VARIABLE, "5")))


def _breaker() -> Breaker | None:
    said = os.environ.get(BREAKER)
    return None if said is None else msgspec.json.decode(said, type=Breaker)


@app.task(backoff=RETRY_IN_200_MS, breaker=_breaker())
async def flapping(ctx: Context, seq: int) -> None:
    with _seen(ctx):
        await dependency.call()


@app.task(backoff=RETRY_IN_200_MS)
async def poison(ctx: Context, seq: int, kind: str) -> None:
    with _seen(ctx):
        match kind:
            case "exit":
                os._exit(7)
            case "segfault":
                ctypes.string_at(0)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hoard":
                # More than any address space that a worker under a limit has: a MemoryError in the midst of the others.
                bytearray(TOO_MUCH)
        raise ValueError("as always")


if WITNESS in os.environ:

    @app.task(
        schedule={"second": Every(seconds=1, missed="all", most_missed=1_000)},
        backoff=RETRY_IN_200_MS,
        max_attempts=HEALTHY_JOB_ATTEMPTS,
    )
    async def tick(ctx: Context) -> None:
        with _seen(ctx):
            """Fires every second."""


@app.task(backoff=RETRY_IN_200_MS, isolate=True, memory_limit=200_000_000)
def memory_bomb(ctx: Context, seq: int, kind: str) -> None:
    with _seen(ctx):
        hoard = []
        while True:
            hoard.append(bytearray(10_000_000))
