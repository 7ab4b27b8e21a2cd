"""Members of batches that a process of the release before has ended, which does not count them: upkeep does."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from hawser.batch import Batch, BatchState, NewBatch, new_batch
from hawser.outcome import Cancelled, Done
from hawser.store import Share, Store
from hawser.stores.sqlite.tx import Tx
from hawser.testing.contract.making import SIGN, a_job, dead, done, take, take_one, write
from tests.mutants import FINISH, Patch, in_postgres
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.stores.test_missed_ends import DEAD, TOLD, Shared, ended_by_an_older_process, opened, prune


def _older_sqlite() -> Patch:
    return mock.patch.object(Tx, "count_member")


def _older_postgres() -> Patch:
    return in_postgres(*((name, TOLD, "false") for name in (*FINISH, "leave")))


@pytest.fixture(params=["sqlite", *(f"postgres {version}" for version in versions())])
async def found(request, tmp_path) -> Shared:
    kind, _, which = request.param.partition(" ")
    if kind == "sqlite":
        return Shared(f"sqlite:///{tmp_path}/jobs.db", _older_sqlite)
    url = with_schema(server(which), own_schema())
    await emptied(url)
    return Shared(url, _older_postgres)


async def filled(store: Store, members: int, **fields: Any) -> NewBatch:
    batch = new_batch(name="b", **fields)
    await store.open_batch(batch)
    await store.enqueue([a_job(batch=batch.id) for _ in range(members)])
    await store.close_batch(batch.id)
    return batch


async def look(store: Store, batch: NewBatch) -> Batch:
    found = await store.batch(batch.id)
    assert found is not None
    return found


@pytest.mark.parametrize("keep", [True, False])
async def test_a_batch_ends_whose_members_an_older_process_has_ended(found, keep):
    async with opened(found.url) as store:
        batch = await filled(store, 3, then=a_job(queue="later"))
        await write(store, done(await take_one(store)))
        await ended_by_an_older_process(found, Done(), Done(), keep=keep)
        assert (await look(store, batch)).ended_at is None
        await prune(found.url)
        batch_now = await look(store, batch)
        assert (batch_now.state, batch_now.done, batch_now.ended_at is None) == (BatchState.DONE, 3, False)
        assert len(await take(store, queue="later")) == 1
        await prune(found.url)
        assert (await look(store, batch)).done == 3


async def test_each_end_is_counted_as_what_it_was(found):
    async with opened(found.url) as store:
        batch = await filled(store, 5, on_dead=a_job(queue="later"))
        await ended_by_an_older_process(found, Done(), DEAD, Cancelled("no"))
        await prune(found.url)
        batch_now = await look(store, batch)
        assert (batch_now.done, batch_now.dead, batch_now.cancelled, batch_now.waiting) == (1, 1, 1, 2)
        assert len(await take(store, queue="later")) == 1
        await write(store, *(done(run) for run in await take(store)))
        assert (await look(store, batch)).state is BatchState.DEAD


async def test_what_an_older_process_ends_in_the_place_of_a_member_is_counted(found):
    """The holder of a key, and a batch inside."""
    async with opened(found.url) as store:
        await store.enqueue([a_job(key="k")])
        batch = new_batch(name="b", then=a_job(queue="later"))
        inside = new_batch(name="inside", parent=batch.id)
        await store.open_batch(batch)
        await store.open_batch(inside)
        await store.enqueue([a_job(key="k", batch=batch.id), a_job(batch=inside.id)])
        for each in (inside, batch):
            await store.close_batch(each.id)
        await ended_by_an_older_process(found, Done(), Done())
        for _ in range(3):
            await prune(found.url)
        batch_now = await look(store, batch)
        assert (batch_now.state, batch_now.total, batch_now.done) == (BatchState.DONE, 2, 2)


async def test_nothing_is_counted_twice(found):
    """Requeued, replaced, held, running, cancelled and added by members: what is counted stays as it is."""
    async with opened(found.url) as store:
        upstream = a_job()
        batch = await filled(store, 4)
        other = new_batch(name="other")
        await store.open_batch(other)
        await store.enqueue([upstream, a_job(batch=other.id).after(upstream), *(a_job(batch=other.id) for _ in range(3))])
        await store.close_batch(other.id)
        runs = await store.claim([Share("default")], 4, "w1", 60)
        await write(store, dead(runs[0]), dead(runs[1]), done(runs[2]))
        await store.requeue([runs[0].id], SIGN)
        before = [await look(store, each) for each in (batch, other)]
        for _ in range(2):
            await prune(found.url)
        assert [await look(store, each) for each in (batch, other)] == before
