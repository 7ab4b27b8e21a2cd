"""A crowd that waits for one event: woken some at a time, also when the emitter dies in the middle."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hawser import Hawser
from hawser.store import Store
from hawser.stores import make_store
from hawser.testing.contract.crowds import HELD_CROWD, crowd_held
from tests.redis_servers import kinds, own_store, shared

AT_ONCE = 1_000
"""Jobs that one transaction or script wakes."""


async def held(store: Store) -> int:
    return (await store.stats()).held


async def at_once(store: Any, event: str) -> None:
    """The first script of an emitter on Redis, behind which it dies."""
    await store.server.run("emit", event, b"1", 60_000_000)


async def goes_on(url: str) -> None:
    """Another process takes back leases, as each does in every second."""
    other = make_store(url)
    await other.open()
    assert await other.reclaim(10) == []
    await other.close()


async def test_on_sqlite_another_process_goes_on(tmp_path: Path):
    """The event of a user's transaction: none of our own process comes behind its commit."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = Hawser(url)
    store = await app.store()
    await crowd_held(store)
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as con:
        con.execute("begin immediate")
        app.inside(con).emit("packed", 1)
        con.commit()
    assert (await held(store), (await store.stats()).ready) == (HELD_CROWD - AT_ONCE, AT_ONCE)
    await goes_on(url)
    assert (await held(store), (await store.stats()).ready) == (0, HELD_CROWD)
    await app.aclose()


@pytest.mark.parametrize("kind", kinds())
async def test_on_redis_another_process_goes_on(kind: str):
    """The emitter dies behind its first script."""
    url = own_store(shared(kind))
    store: Any = make_store(url)
    await store.open()
    await crowd_held(store)
    await at_once(store, "packed")
    assert await held(store) == HELD_CROWD - AT_ONCE
    await goes_on(url)
    assert (await held(store), (await store.stats()).ready) == (0, HELD_CROWD)
    await store.close()


@pytest.mark.parametrize("kind", ["sqlite", *kinds()])
async def test_who_emits_again_wakes_the_others(kind: str, tmp_path: Path):
    """The answer to the first call was lost with its process: the second one does not answer before all are ready."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if kind == "sqlite" else own_store(shared(kind))
    app = Hawser(url)
    store = await app.store()
    await crowd_held(store)
    if kind == "sqlite":
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as con:
            con.execute("begin immediate")
            app.inside(con).emit("packed", 1)
            con.commit()
    else:
        await at_once(store, "packed")
    assert not (await app.aemit("packed", 1)).created
    assert await held(store) == 0
    await app.aclose()
