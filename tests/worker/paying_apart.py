"""An app whose isolated handlers settle their jobs in transactions of their own. The first run of each is killed at COMMIT."""

import asyncio
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import asyncpg

from hawser import Context, Fixed, Hawser
from tests.worker.tasks import note

app = Hawser()  # the store is $HAWSER_STORE
SOON = Fixed(every=0.05, jitter="none")

PAID = f"paid_apart_{os.environ.get('HAWSER_TEST_TABLE', '')}"
"""The handlers' own table."""


def at_commit(ctx: Context) -> None:
    """The statement that settles the job has been written, and COMMIT has not."""
    note("commit", ctx)
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def looked() -> bool:
    """Whether the test has seen what the first run left."""
    return Path(os.environ["HAWSER_TEST_JOURNAL"]).with_name("looked").exists()


@app.task(isolate=True, max_attempts=3, backoff=SOON, timeout=60)
def pay_on_sqlite(ctx: Context) -> None:
    class Killed(sqlite3.Connection):
        def commit(self) -> None:
            at_commit(ctx)
            super().commit()

    note("start", ctx)
    while ctx.attempt > 1 and not looked():
        time.sleep(0.01)
    with ctx.transaction(sqlite3.connect(os.environ["HAWSER_TEST_FILE"], factory=Killed)) as con:
        con.execute(f"insert into {PAID} values (?)", (f"attempt {ctx.attempt}",))


@app.task(isolate=True, max_attempts=3, backoff=SOON, timeout=60)
async def pay_on_postgres(ctx: Context) -> None:
    class Killed(asyncpg.Connection):
        async def execute(self, query: str, *rest: Any, **options: Any) -> Any:
            if query.startswith("COMMIT"):
                at_commit(ctx)
            return await super().execute(query, *rest, **options)

    note("start", ctx)
    while ctx.attempt > 1 and not looked():
        await asyncio.sleep(0.01)
    async with ctx.transaction(await asyncpg.connect(os.environ["HAWSER_TEST_DSN"], connection_class=Killed)) as con:
        await con.execute(f"insert into {PAID} values ($1)", f"attempt {ctx.attempt}")
