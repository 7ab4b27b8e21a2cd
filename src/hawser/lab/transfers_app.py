"""The app of `hawser lab transfers`: transfers between accounts in the store's own database, and a sink that counts by key."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path
from typing import Any, Final

from hawser.app import Hawser
from hawser.backoff import Fixed
from hawser.context import Context
from hawser.lab.app import WITNESS

CUT: Final = "HAWSER_LAB_CUT"
"""The environment variable that says how probable it is that a connection is cut at COMMIT, before or after it took effect."""

RETRY_IN_100_MS: Final = Fixed(every=0.1)
MANY: Final = 1_000
"""Attempts: no transfer may be given up because it was cut off often."""

TABLES: Final = (
    "create table lab_account (id integer primary key, balance integer not null)",
    "create table lab_transfer (job text not null, source integer not null, target integer not null, amount integer not null)",
)

app = Hawser()


def cut_at_commit() -> str | None:
    """Whether the next commit is cut: before the server hears of it, after it took effect, or not."""
    chance = float(os.environ.get(CUT, "0"))
    dice = random.random()  # noqa: S311  # no secret
    return None if dice >= chance else "before" if dice < chance / 2 else "after"


class CutSqlite(sqlite3.Connection):
    """Breaks at COMMIT, now and then. Without a wire what is lost is the answer."""

    def commit(self) -> None:
        how = cut_at_commit()
        if how == "before":
            self.rollback()
            raise OSError("cut before the commit")
        super().commit()
        if how == "after":
            raise OSError("cut after the commit")


@app.on_start
async def pool(app: Hawser) -> Any:
    """Connections of the handlers' own, to the store's database."""
    assert app.store_url is not None
    if not app.store_url.startswith("postgres"):
        return None
    import asyncpg  # noqa: PLC0415  # only on PostgreSQL

    from hawser.stores.postgres.address import parse  # noqa: PLC0415

    class CutConnection(asyncpg.Connection):
        """Breaks at COMMIT, now and then."""

        async def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:  # asyncpg's own
            how = cut_at_commit() if query.startswith("COMMIT") else None
            answer = None if how == "before" else await super().execute(query, *args, timeout=timeout)
            if how is not None:
                self.terminate()
                raise OSError(f"cut {how} the commit")
            return answer

    host = parse(app.store_url).hosts[0]
    return await asyncpg.create_pool(host, min_size=1, max_size=8, connection_class=CutConnection, timeout=10)


async def close(opened: Any) -> None:
    if opened is not None:
        opened.terminate()


app.on_stop(pool)(close)


@app.task(max_attempts=MANY, backoff=RETRY_IN_100_MS)
async def transfer(ctx: Context, source: int, target: int, amount: int) -> None:
    """On PostgreSQL."""
    async with ctx.transaction(ctx.state["pool"]) as con:
        for account, by in sorted([(source, -amount), (target, amount)]):
            await con.execute("update lab_account set balance = balance + $1 where id = $2", by, account)
        await con.execute("insert into lab_transfer values ($1, $2, $3, $4)", ctx.job.id, source, target, amount)


@app.task(max_attempts=MANY, backoff=RETRY_IN_100_MS)
def transfer_in_file(ctx: Context, source: int, target: int, amount: int) -> None:
    """On SQLite."""
    assert app.store_url is not None
    con = sqlite3.connect(app.store_url.partition("?")[0].removeprefix("sqlite:///"), timeout=30, factory=CutSqlite)
    try:
        with ctx.transaction(con):
            con.execute("update lab_account set balance = balance - ? where id = ?", (amount, source))
            con.execute("update lab_account set balance = balance + ? where id = ?", (amount, target))
            con.execute("insert into lab_transfer values (?, ?, ?, ?)", (ctx.job.id, source, target, amount))
    finally:
        con.close()


@app.task(max_attempts=MANY, backoff=RETRY_IN_100_MS)
async def pay_by_step(ctx: Context) -> None:
    """An effect elsewhere, which counts by key: three steps, each with a chance to die between effect and record."""
    for name in ("reserve", "charge", "mail"):
        await ctx.step(name, lambda name=name: _effect(ctx.key(name), ctx.lease))


async def _effect(key: str, lease: int) -> str:
    fd = os.open(Path(os.environ[WITNESS]) / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"effect {key} {lease}\n".encode())
    finally:
        os.close(fd)
    return key
