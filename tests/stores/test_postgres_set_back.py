"""A database that is set back to an earlier state, under processes that remember the later one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from hawser import Every
from hawser.errors import OutcomeUnknown
from hawser.job import NewJob
from hawser.outcome import Done
from hawser.schedule.rule import text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import Actor, Settled, Settlement, Share
from hawser.stores.postgres import PostgresStore, enqueue_arguments
from hawser.stores.postgres.errors import LanesForgotten
from hawser.testing.contract.making import said
from hawser.value.ids import new_id
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema

SIGN = Actor(by="test")


@pytest.fixture(params=versions())
async def url(request):
    url = with_schema(server(request.param), f"{own_schema()}_back")
    await emptied(url)
    return url


@pytest.fixture
async def store(url):
    store = postgres(url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(url):
    """Another process's."""
    other = postgres(url)
    await other.open()
    yield other
    await other.close()


def job(task: str = "work", **fields: Any) -> NewJob:
    return NewJob(task=task, body=b"{}", **fields)


async def set_back(store: PostgresStore) -> None:
    """To a time before any lane was made: so does a backup, or a crash without syncing."""

    async def work(con: Any) -> None:
        schema = store.server.address.schema
        await con.execute(f"delete from {schema}.lane; delete from {schema}.job; update {schema}.control set version = 1")

    await store.server.connection("operate").together(work)


async def tasks(store: PostgresStore) -> list[str]:
    found: list[str] = []
    while some := await store.claim([Share("default")], 1_000, "w", 60):
        found += [each.task for each in some]
    return sorted(found)


@pytest.mark.parametrize("many", [1, enqueue_arguments.JOBS_PER_STATEMENT + 1], ids=["inserted", "copied"])
async def test_a_job_gets_a_lane_of_its_own_again_and_never_that_of_another_task(store, other, many):
    await store.enqueue([job("mail")])
    await set_back(store)
    await other.enqueue([job("charge")])
    await store.enqueue([job("mail") for _ in range(many)])
    assert await tasks(other) == ["charge", *["mail"] * many]


async def test_a_worker_sees_the_lanes_that_were_made_after_it_was_set_back(store, other):
    await store.enqueue([job("mail")])
    assert await tasks(store) == ["mail"]
    await set_back(store)
    await other.enqueue([job("charge")])
    assert await tasks(store) == ["charge"]


async def test_jobs_that_wait_again_are_found_although_claims_were_past_them(store):
    for _ in range(3):
        await store.enqueue([job()])
        [run] = await store.claim([Share("default")], 10, "w", 60)
        await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint)])
        await asyncio.sleep(0.15)  # the jobs are due further apart than claims go back (`LAG`)
    schema = store.server.address.schema
    back = (
        f"insert into {schema}.job (id, lane, body, run_at, enqueued_at, max_attempts, timeout, kind) "
        f"select $1, lane, body, run_at, enqueued_at, 5, 300, 0 from {schema}.done order by run_at limit 1"
    )
    await store.server.connection("operate").rows(back, new_id())
    pid = await store.server.connection("claim").value("select pg_backend_pid()")
    await store.server.connection("operate").rows("select pg_terminate_backend($1)", pid)
    found: list[str] = []
    with suppress(OutcomeUnknown):
        found = await tasks(store)
    assert found or await tasks(store) == ["work"]


async def test_jobs_that_follow_from_a_run_are_there(store):
    await store.enqueue([job("mail"), job("next")])
    known = store.catalog.view
    await set_back(store)
    await store.enqueue([job("mail")])
    [run] = await store.claim([Share("default")], 10, "w", 60)
    store.catalog.view = known
    assert said(await store.settle([Settlement(run.id, run.lease, Done(), then=(job("next"),))])) == [Settled.SETTLED]
    assert await tasks(store) == ["next"]


async def test_a_schedule_fires(store):
    await store.enqueue([job("mail")])
    await set_back(store)
    advance = create(Definition(name="daily", task="mail", rule_text=text_of(Every(minutes=5))), 0)
    await store.put_schedule(msgspec.structs.replace(advance, jobs=(job("mail"),)), "create", SIGN)
    assert await tasks(store) == ["mail"]


async def test_a_guest_hears_of_it_and_succeeds_with_the_next_try(store, url):
    await store.enqueue([job("mail")])
    await set_back(store)

    async def guest(con: Any) -> None:
        await (await store.prepare_enqueue([job("mail")])).arun(con)

    with pytest.raises(LanesForgotten, match="set back to an earlier state"):
        await store.server.connection("operate").together(guest)
    await store.server.connection("operate").together(guest)
    assert await tasks(store) == ["mail"]
