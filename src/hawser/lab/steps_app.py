"""The app of `hawser lab steps`: flows of ten steps with sleeps, waits and jobs of their own. What happens is written down."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, Final

from hawser.app import Hawser
from hawser.backoff import Fixed
from hawser.context import Context
from hawser.errors import EventTimeout
from hawser.lab.app import WITNESS

STEP_LINES: Final = "lines"
"""The file in the witness's folder with a line for each effect, each value that a run saw and each wait that it came to."""

RETRIED_SOON: Final = Fixed(every=0.1)
MANY: Final = 1_000
"""Attempts: no flow may be given up because its process was killed often."""

FLOW_TASKS: Final = [f"flow{number}" for number in range(40)]
PART_TASKS: Final = [f"part{number}" for number in range(40)]
"""Tasks: many, since the task of a job that may have killed its process is run apart for half a minute."""

EFFECT_STEPS: Final = ("reserve", "charge", "mail", "pack", "close")
"""Steps of a flow that have an effect elsewhere."""

EVENT_WITHIN_S: Final = 3_600.0
NO_EVENT_WITHIN_S: Final = 0.3
"""Seconds for which a flow waits: one whose event comes, and one whose event does not."""

app = Hawser()


async def flow(ctx: Context, number: int, pause: float, comes: bool) -> dict[str, Any]:
    """Ten steps in six runs, if no fault adds some."""
    paid, sent = events_of(ctx.job.id)
    await _do(ctx, "reserve")
    await _do(ctx, "charge")
    await ctx.sleep("cool off", pause)
    await _do(ctx, "mail")
    _write(f"at {paid}")
    heard = await ctx.wait_for(paid, timeout=EVENT_WITHIN_S, into=int)
    await _do(ctx, "pack")
    task = app.tasks[PART_TASKS[number % len(PART_TASKS)]]
    parts = await ctx.gather(*(task.job(part=part) for part in (number, number + 1)))
    await ctx.sleep("settle", pause)
    _write(f"at {sent}")
    try:
        last: int | None = await ctx.wait_for(sent, timeout=EVENT_WITHIN_S if comes else NO_EVENT_WITHIN_S, into=int)
    except EventTimeout:
        last = None
    await _do(ctx, "close")
    return {"paid": heard, "parts": parts, "sent": last}


async def part(part: int) -> int:
    """A job of a flow's own."""
    return 2 * part


for _flow, _part in zip(FLOW_TASKS, PART_TASKS, strict=True):
    app.task(name=_flow, max_attempts=MANY, backoff=RETRIED_SOON)(flow)
    app.task(name=_part, max_attempts=MANY, backoff=RETRIED_SOON)(part)


def events_of(job: str) -> tuple[str, str]:
    """What a flow waits for, first and last."""
    return f"paid:{job}", f"sent:{job}"


async def _do(ctx: Context, name: str) -> None:
    """A step with an effect, which says what run it is of; and what this run got of it."""
    lease = await ctx.step(name, lambda: _effect(ctx, name))
    _write(f"saw {ctx.key(name)} {lease}")


async def _effect(ctx: Context, name: str) -> int:
    _write(f"effect {ctx.key(name)} {ctx.lease}")
    return ctx.lease


def _write(line: str) -> None:
    os.write(_file(os.environ[WITNESS]), f"{line}\n".encode())


@cache
def _file(folder: str) -> int:
    return os.open(Path(folder) / STEP_LINES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
