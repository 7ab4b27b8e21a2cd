"""Batches that are cancelled as a whole."""

from __future__ import annotations

from hawser.batch import BatchState
from hawser.job import State
from hawser.store import Acted, Actor, LeaseRef, Store
from hawser.testing.contract.batches import closed, filled, look, opened, released
from hawser.testing.contract.making import SIGN, Opener, a_job, done, failed, running, seen, take, take_one, write
from hawser.testing.contract.members import counts

WHY = Actor(by="ann", reason="wrong file")


async def test_cancelling_ends_what_waits_and_asks_what_runs(store: Store) -> None:
    """Close a batch, end its members that wait, and ask the workers of those that run to stop; so in batches inside it."""
    batch = await opened(store)
    child = await opened(store, "then", then=None, parent=batch.id)
    upstream = a_job(batch=batch.id)
    await store.enqueue([upstream, a_job(batch=batch.id).after(upstream), a_job(batch=batch.id, delay=60, key="k")])
    runs = await take_one(store)
    await filled(store, child, 2)
    inside = await take_one(store)
    beside = a_job(queue="beside")
    await store.enqueue([beside])
    assert await store.cancel_batch(batch.id, WHY) is Acted.DONE
    assert await counts(store, batch) == (4, 1, 1, 0, 0, 2)
    assert await counts(store, child) == (2, 0, 1, 0, 0, 1)
    found = await look(store, batch)
    assert (found.closed, found.cancel_asked, found.reason, found.state) == (True, True, "wrong file", BatchState.RUNNING)
    assert {ref.id for ref in await store.asked_to_stop(["w1"])} == {runs.id, inside.id}
    assert (await seen(store, beside.id)).state is State.READY
    assert await released(store) == []
    await write(store, failed(runs), done(inside))
    assert (await look(store, child)).state is BatchState.CANCELLED
    assert await counts(store, batch) == (4, 0, 0, 0, 0, 4)
    assert await released(store) == ["then"]
    assert (await seen(store, runs.id)).reason == "wrong file"
    assert (await seen(store, batch.follow_ups["on_success"].id)).state is State.CANCELLED


async def test_a_batch_that_has_ended_cannot_be_cancelled(store: Store) -> None:
    """A batch that has ended is in the wrong state."""
    batch = await opened(store)
    await closed(store, batch)
    assert await store.cancel_batch(batch.id, WHY) is Acted.WRONG_STATE
    other = await opened(store)
    assert await store.cancel_batch(other.id, WHY) is Acted.DONE
    assert (await look(store, other)).state is BatchState.DONE, "it had no members"
    assert await store.cancel_batch(other.id, WHY) is Acted.WRONG_STATE
    [record] = await store.audit()
    assert (record.action, record.target, record.reason) == ("cancel_batch", f"batch:{other.id}", "wrong file")


async def test_a_large_batch_is_cancelled_whole(store: Store, reopen: Opener) -> None:
    """Close a batch, end its members that wait, and ask the workers of those that run to stop; so in batches inside it.
    A crash in the middle leaves no member behind: each `reclaim` goes on with it."""
    batch = await opened(store)
    for _ in range(3):
        await filled(store, batch, 1_000)
    await take_one(store)
    await store.cancel_batch(batch.id, WHY)
    store = await reopen()
    for _ in range(5):
        await store.reclaim(10)
    assert await counts(store, batch) == (3_000, 0, 1, 0, 0, 2_999)
    assert (await store.stats()).ready == 0


async def test_the_holder_of_a_key_is_not_cancelled_with_the_batch(store: Store) -> None:
    """Close a batch, end its members that wait, and ask the workers of those that run to stop; so in batches inside it."""
    holder = a_job(key="k")
    await store.enqueue([holder])
    batch = await opened(store)
    await store.enqueue([a_job(key="k", batch=batch.id)])
    await store.cancel_batch(batch.id, WHY)
    assert await counts(store, batch) == (1, 1, 0, 0, 0, 0)
    await write(store, done(await take_one(store)))
    assert await counts(store, batch) == (1, 0, 0, 1, 0, 0)
    assert await released(store) == ["on_success", "then"]


async def test_a_cancelled_member_may_be_requeued(store: Store) -> None:
    batch = await opened(store)
    [member] = await filled(store, batch, 1)
    await store.cancel_batch(batch.id, WHY)
    assert await released(store) == ["then"]
    assert await store.requeue([member], SIGN) == [Acted.DONE]
    await store.reclaim(10)
    assert await counts(store, batch) == (1, 1, 0, 0, 0, 0)
    await write(store, done(await take_one(store)))
    assert (await look(store, batch)).state is BatchState.DONE
    assert await released(store) == [], "on_success went with the cancel"


async def test_a_run_that_was_asked_is_told(store: Store) -> None:
    batch = await opened(store)
    claimed = await running(store, batch=batch.id)
    await store.cancel_batch(batch.id, WHY)
    assert await store.asked_to_stop(["w1"]) == [LeaseRef(claimed.id, claimed.lease)]
    await write(store, done(claimed))
    assert (await look(store, batch)).state is BatchState.DONE, "done stands when a cancel was asked"
    assert await take(store) == []
