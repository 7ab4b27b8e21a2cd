"""What stores know of groups that have nothing waiting is forgotten: what is counted here are rows, not what claims give."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import asyncpg
import pytest
import redis

from hawser.limit import Limit
from hawser.outcome import Done
from hawser.store import Actor, Retention, Settlement, Share, Store, Target
from hawser.stores import make_store
from hawser.stores.memory import limits as memory_limits
from hawser.stores.sqlite import group_rules
from hawser.testing import ManualClock
from hawser.testing.contract.making import a_job
from tests.mutants import in_postgres, in_redis
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.redis_servers import kinds, own_store, shared
from tests.stores.test_postgres_transaction import dsn

GROUPS = 20
KEPT = Retention(done=3_600, dead=3_600, cancelled=3_600)


class Opened:
    """A store, and how many rows it has that are of groups."""

    def __init__(self, kind: str, store: Any, url: str, clock: ManualClock) -> None:
        self.kind = kind
        self.clock = clock
        self.store: Store = store
        self._any = store
        self._url = url

    async def known(self) -> dict[str, int]:
        match self.kind:
            case "memory":
                limits = self._any._limits
                return {"windows": len(limits._group_windows), "heads": len(limits.heads)}
            case "sqlite":
                with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"))) as con:
                    return {table: con.execute(f"select count(*) from {table}").fetchone()[0] for table in SQLITE}
            case "postgres":
                line = await asyncpg.connect(dsn(self._url))
                try:
                    return {each: await line.fetchval(f"select count(*) from {own_schema()}.{each}") for each in POSTGRES}
                finally:
                    await line.close()
            case _:
                with redis.Redis.from_url(shared(kinds()[0])) as client:
                    return {name: int(client.hlen(f"{self._any.address.prefix}{name}")) for name in REDIS}


SQLITE = ("hawser_known_group", "hawser_turn")
POSTGRES = ("group_meter", "group_turn", "arrived")
REDIS = ("groupheads", "groupstarts", "groupruns")


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[Opened]]]:
    clock, stores = ManualClock(), []
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}.get(request.param)
    if request.param == "postgres":
        url = with_schema(server(versions()[-1]), own_schema())
        await emptied(url)
    if request.param == "redis":
        url = own_store(shared(kinds()[0]))
    assert url is not None

    async def opened() -> Opened:
        store = make_store(url, clock=clock)
        await store.open()
        stores.append(store)
        return Opened(request.param, store, url, clock)

    yield opened
    for store in stores:
        await store.close()


async def used_and_idle(found: Opened) -> None:
    """Twenty groups come, are served under a limit with a rate and an order, and have nothing left."""
    store, clock = found.store, found.clock
    limit = Limit(running=1, rate="5/m", per_group=True, ordered=True)
    await store.set_limit(Target("task", "work"), limit, Actor("test"))
    await store.enqueue([a_job(group=f"g{n}") for n in range(GROUPS) for _ in range(2)])
    for _ in range(2):
        runs = await store.claim([Share("default")], 100, "w1", 60)
        assert len(runs) == GROUPS
        await store.settle([Settlement(run.id, run.lease, Done()) for run in runs])
    assert await store.claim([Share("default")], 100, "w1", 60) == []
    known = await found.known()
    assert max(known.values()) >= GROUPS, known
    clock.advance(300)
    for _ in range(3):
        await store.prune(KEPT, {}, 1_000)


async def test_what_is_known_of_idle_groups_is_forgotten(opened: Callable[[], Awaitable[Opened]]) -> None:
    found = await opened()
    await used_and_idle(found)
    assert not any((await found.known()).values()), await found.known()


def forgetful_no_more(kind: str) -> Any:
    """The store, if nothing were forgotten."""
    match kind:
        case "memory":
            return mock.patch.object(memory_limits.Limits, "forget_groups", return_value=None)
        case "sqlite":
            return mock.patch.object(group_rules, "forget", return_value=None)
        case "postgres":
            return in_postgres(("forget_groups", "for update of g skip locked", "and false for update of g skip locked"))
        case _:
            return in_redis(("forget_groups", "if not live(found[i], found[i + 1])", "if false"))


async def test_a_store_that_forgets_no_groups_is_noticed(
    opened: Callable[[], Awaitable[Opened]], request: pytest.FixtureRequest
) -> None:
    kind = request.node.callspec.params["opened"]
    with forgetful_no_more(kind):
        found = await opened()
        await used_and_idle(found)
        assert any((await found.known()).values())
