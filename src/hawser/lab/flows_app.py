"""The app of `hawser lab flows`: members of batches, the jobs that follow, jobs that wait for others. Runs are written down."""

from __future__ import annotations

import asyncio
import os
from functools import cache
from pathlib import Path
from typing import Final

from hawser.app import Hawser
from hawser.backoff import Fixed
from hawser.batch import Batch
from hawser.context import Context
from hawser.decision import Drop
from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.lab.app import WITNESS

RUNS: Final = "runs"
"""The file in the witness's folder with a line for each start and end, in the order in which they came."""

MENDED: Final = "mended"
"""The file in the witness's folder from which on no member dies any more."""

RETRY_IN_100_MS: Final = Fixed(every=0.1)
MANY: Final = 1_000
"""Attempts: no job may be given up because its process was killed often."""

MEMBER_TASKS: Final = [f"member{number}" for number in range(40)]
"""Tasks of members: many, since the task of a job that may have killed its process is run apart for half a minute."""

app = Hawser()


async def member(ctx: Context, ms: int, grows: int = 0, dies: bool = False) -> None:
    """Takes a while; may die, may add further members."""
    await asyncio.sleep(ms / 1000)
    if dies and not (Path(os.environ[WITNESS]) / MENDED).exists():
        raise Drop("as planned")
    if grows:
        ctx.batch.add(*(app.tasks[name].job(ms=ms) for name in MEMBER_TASKS[:grows]))


for _name in MEMBER_TASKS:
    app.task(name=_name, max_attempts=MANY, backoff=RETRY_IN_100_MS)(member)


@app.task(max_attempts=MANY, backoff=RETRY_IN_100_MS)
async def follow(ctx: Context, batch: str) -> None:
    """Writes down how the batch stands by which it was released."""
    found = await _asked(batch)
    _write(f"follow {ctx.job.id} {found.waiting + found.running} {int(found.closed)} {found.dead}")


@app.task(max_attempts=MANY, backoff=RETRY_IN_100_MS)
async def link(ctx: Context) -> None:
    """One that waits for others, or that others wait for."""
    _write(f"start {ctx.job.id}")
    _write(f"end {ctx.job.id}")


async def _asked(batch: str) -> Batch:
    """A store that is away is waited for: its absence is no fault of the run."""
    while True:
        try:
            return await app.aget_batch(batch)
        except (StoreUnavailable, OutcomeUnknown):
            await asyncio.sleep(0.2)


def _write(line: str) -> None:
    os.write(_file(), f"{line}\n".encode())


@cache
def _file() -> int:
    return os.open(Path(os.environ[WITNESS]) / RUNS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
