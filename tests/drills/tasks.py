"""The mixed load of the drills. What a job does outside goes to a sink that knows the fence."""

import asyncio
import os
import random
import sqlite3
import time
from typing import Any

from hawser import Context, Fixed, Hawser, NewJob, Task

app = Hawser()
SOON = Fixed(every=0.2)
SINK = """
create table if not exists effect (job text primary key, lease integer not null, again integer not null default 0);
create table if not exists refused (job text, lease integer);
"""


def apply_once(ctx: Context) -> None:
    """The effect: applied for the first lease that comes, counted again for a later one, refused for an earlier one."""
    con = sqlite3.connect(os.environ["HAWSER_DRILL_SINK"], timeout=30, isolation_level=None)
    try:
        con.execute("begin immediate")
        found = con.execute("select lease from effect where job = ?", (ctx.job.id,)).fetchone()
        if found is None:
            con.execute("insert into effect (job, lease) values (?, ?)", (ctx.job.id, ctx.lease))
        elif found[0] <= ctx.lease:
            con.execute("update effect set lease = ?, again = again + 1 where job = ?", (ctx.lease, ctx.job.id))
        else:
            con.execute("insert into refused values (?, ?)", (ctx.job.id, ctx.lease))
        con.execute("commit")
    finally:
        con.close()


@app.task(max_attempts=50, backoff=SOON)
async def fast(ctx: Context, seq: int) -> None:
    await asyncio.sleep(random.uniform(0.001, 0.005))
    apply_once(ctx)


@app.task(max_attempts=50, backoff=SOON)
async def slow(ctx: Context, seq: int) -> None:
    await asyncio.sleep(random.uniform(0.2, 2))
    apply_once(ctx)


@app.task(max_attempts=50, backoff=SOON)
def longer_than_the_lease(ctx: Context, seq: int) -> None:
    time.sleep(5)
    apply_once(ctx)


@app.task(max_attempts=50, backoff=SOON)
async def flapping(ctx: Context, seq: int) -> None:
    if random.random() < 0.5:
        raise ConnectionError("the dependency is down")
    apply_once(ctx)


@app.task(max_attempts=3, backoff=SOON)
async def poison(ctx: Context, seq: int) -> None:
    raise ValueError("as always")


def mixed(count: int, rng: random.Random) -> list[NewJob]:
    tasks: list[Task[..., Any]] = [fast, slow, longer_than_the_lease, flapping, poison]
    return [rng.choices(tasks, (70, 18, 2, 5, 5))[0].job(seq) for seq in range(count)]
