"""Members of batches that wait for what comes after their batch: refused, for neither would ever start."""

from __future__ import annotations

import asyncio

import pytest

from hawser.batch import NewBatch
from hawser.errors import InvalidJob
from hawser.job import NewJob, State
from hawser.store import BEHIND_READ, Filter, Store
from hawser.testing.contract.batches import WORDS, closed, look, opened, released
from hawser.testing.contract.making import SIGN, Opener, a_job, add, done, ids, running, seen, take_one, write


def released_by(batch: NewBatch) -> list[str]:
    return [job.id for job in batch.follow_ups.values()]


async def refused(store: Store, batch: NewBatch, behind: str) -> None:
    """Nothing of such a call is written, and the error names what is wrong."""
    before = len((await store.find(Filter(), limit=1000)).jobs)
    jobs = [a_job(batch=batch.id), a_job(batch=batch.id, waits_for=(await add(store), behind))]
    with pytest.raises(InvalidJob) as error:
        await store.enqueue(jobs)
    text = f"{behind} waits for batch {batch.id}, in which this job counts: neither would ever start; leave one of the two out"
    assert [(each.field, each.message) for each in error.value.errors] == [("after", text)]
    assert len((await store.find(Filter(), limit=1000)).jobs) == before + 1
    assert (await look(store, batch)).total == 0


@pytest.mark.parametrize("word", WORDS)
async def test_a_member_that_waits_for_what_its_batch_releases_is_refused(store: Store, word: str) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    batch = await opened(store)
    await refused(store, batch, batch.follow_ups[word].id)


async def test_a_member_that_waits_for_what_comes_after_a_batch_around_it_is_refused(store: Store) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    top = await opened(store)
    middle = await opened(store, "then", parent=top.id)
    child = await opened(store, "then", parent=middle.id)
    for behind in (*released_by(top), *released_by(middle), top.id, middle.id):
        await refused(store, child, behind)


async def test_a_member_may_wait_for_what_another_batch_releases(store: Store) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    first, second = await opened(store, "then"), await opened(store, "on_success")
    waiter = a_job(batch=second.id, waits_for=(first.id, *released_by(first)))
    inner = await opened(store, "then", then=None, parent=second.id)
    around = a_job(batch=second.id, waits_for=(inner.id,))
    await store.enqueue([waiter, around])
    for batch in (first, second, inner):
        await closed(store, batch)
    await write(store, done(await take_one(store)))
    await write(store, done(await take_one(store, queue="later")))
    await write(store, done(await take_one(store)))
    assert await released(store) == ["on_success"]


async def test_a_follower_that_waits_for_what_its_batch_releases_is_cancelled(store: Store) -> None:
    """So are those that wait for what in turn waits for their batch."""
    top = await opened(store)
    batch = await opened(store, "then", parent=top.id)
    member = await running(store, batch=batch.id)
    followers: list[NewJob] = [a_job(batch=batch.id, waits_for=(each.follow_ups["then"].id,)) for each in (batch, top)]
    await write(store, done(member, *followers))
    for job in followers:
        found = await seen(store, job.id)
        assert (found.state, found.batch) == (State.CANCELLED, None)
        assert found.reason == f"it was to be added to batch {batch.id}, which it would wait for in a circle"
    for each in (batch, top):
        await closed(store, each)
    assert (await look(store, top)).total == 1
    assert await released(store) == ["on_success", "then", "then"]


async def refuses(store: Store, *jobs: NewJob) -> None:
    """Such a call is refused, and nothing of it is written."""
    before = len((await store.find(Filter(), limit=1000)).jobs)
    [said] = await asyncio.gather(store.enqueue(jobs), return_exceptions=True)
    assert isinstance(said, InvalidJob)
    assert "neither would ever start" in str(said)
    assert len((await store.find(Filter(), limit=1000)).jobs) == before


async def test_two_batches_do_not_wait_for_each_other(store: Store) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    x, y = await opened(store, "then"), await opened(store, "then")
    first = a_job(batch=x.id, waits_for=(y.id,))
    await store.enqueue([first])
    await refuses(store, a_job(batch=y.id), a_job(batch=y.id, waits_for=(x.id,)))
    await refuses(store, a_job(batch=y.id, waits_for=tuple(released_by(x))))
    assert ((await look(store, x)).total, (await look(store, y)).total) == (1, 0)
    await store.enqueue([first, a_job(batch=y.id)])  # what is there already is not refused
    for batch in (x, y):
        await closed(store, batch)
    await write(store, done(await take_one(store)))
    assert await released(store) == ["then"]
    await write(store, done(await take_one(store)))
    assert await released(store) == ["then"]


async def test_three_batches_do_not_wait_for_each_other_in_turn(store: Store) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    x, y, z = [await opened(store, "then") for _ in range(3)]
    await store.enqueue([a_job(batch=x.id, waits_for=(y.id,)), a_job(batch=y.id, waits_for=tuple(released_by(z)))])
    for behind in (x.id, *released_by(x), y.id):
        await refuses(store, a_job(batch=z.id, waits_for=(behind,)))
    inner = await opened(store, "then", parent=z.id)
    await refuses(store, a_job(batch=inner.id, waits_for=(x.id,)))
    await store.enqueue([a_job(batch=x.id, waits_for=(inner.id, z.id))])


async def test_a_member_does_not_wait_for_its_batch_over_a_third_job(store: Store) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    batch = await opened(store, "then")
    third = a_job(waits_for=tuple(released_by(batch)))
    fourth = a_job(waits_for=(third.id,))
    await refuses(store, third, a_job(batch=batch.id, waits_for=(third.id,)))
    await store.enqueue([third, fourth])
    await refuses(store, a_job(batch=batch.id, waits_for=(fourth.id,)))
    other = await opened(store, "then")
    await store.enqueue([a_job(batch=other.id, waits_for=(fourth.id,))])


async def test_one_call_does_not_write_a_circle(store: Store) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    x, y, z = [await opened(store, "then") for _ in range(3)]
    await refuses(store, a_job(batch=x.id, waits_for=(y.id,)), a_job(batch=y.id, waits_for=(x.id,)))
    third = a_job(waits_for=tuple(released_by(x)))
    members = a_job(batch=z.id, waits_for=(third.id,)), a_job(batch=y.id, waits_for=(z.id,)), a_job(batch=x.id, waits_for=(y.id,))
    await refuses(store, third, *members)
    await store.enqueue([third, *members[:2]])


async def test_a_member_may_wait_for_other_members(store: Store) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    batch = await opened(store, "then")
    first = a_job(batch=batch.id)
    second = a_job(batch=batch.id, waits_for=(first.id,))
    await store.enqueue([first, second])
    await store.enqueue([a_job(batch=batch.id, waits_for=(second.id,))])
    await closed(store, batch)
    for _ in range(3):
        await write(store, done(await take_one(store)))
    assert await released(store) == ["then"]


async def test_what_was_released_is_waited_for(store: Store) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    batch = await opened(store, "on_dead")
    third = a_job(waits_for=(batch.id,), waits_on="ended")
    await store.enqueue([third])
    await store.cancel([third.id], SIGN)
    await store.requeue([third.id], SIGN)
    await store.enqueue([a_job(batch=batch.id, waits_for=(third.id,))])
    assert (await look(store, batch)).total == 1


async def test_a_key_closes_no_circle(store: Store) -> None:
    """So is one whose key is held by a job that waits for its batch."""
    batch, other = await opened(store, "then"), await opened(store, "then")
    holder = a_job(key="k", waits_for=(batch.id,))
    await store.enqueue([holder])
    await refuses(store, a_job(batch=batch.id, key="k"))
    named = a_job(key="k")
    await refuses(store, named, a_job(batch=batch.id, waits_for=(named.id,)))
    await store.enqueue([a_job(batch=other.id, key="k")])
    assert ((await look(store, batch)).total, (await look(store, other)).total) == (0, 1)
    await refuses(store, a_job(batch=batch.id, waits_for=(other.id,)))


async def test_the_holder_of_a_followers_key_closes_no_circle(store: Store) -> None:
    """A job that waits for a batch does not count in it by holding the key of one that follows."""
    batch = await opened(store, "then")
    member = await running(store, batch=batch.id)
    await store.enqueue([a_job(key="k", waits_for=(batch.id,))])
    await write(store, done(member, a_job(batch=batch.id, key="k")))
    assert (await look(store, batch)).total == 1
    await closed(store, batch)
    assert await released(store) == ["then"]


async def test_followers_do_not_close_a_circle_over_another_batch(store: Store) -> None:
    """So are those that wait for what in turn waits for their batch."""
    x, y = await opened(store, "then"), await opened(store, "then")
    member = await running(store, batch=x.id)
    third = a_job(waits_for=tuple(released_by(x)))
    followers = [
        a_job(batch=x.id, waits_for=(y.id,)),
        a_job(batch=y.id, waits_for=(x.id,)),
        third,
        a_job(batch=y.id, waits_for=(third.id,)),
        a_job(batch=y.id),
    ]
    await write(store, done(member, *followers))
    assert [(await seen(store, id)).state for id in ids(followers)] == [
        *(State.READY, State.CANCELLED, State.READY),
        *(State.CANCELLED, State.READY),
    ]
    assert ((await look(store, x)).total, (await look(store, y)).total) == (2, 1)
    for batch in (x, y):
        await closed(store, batch)
    for left in (["then"], ["then"]):
        await write(store, done(await take_one(store)))
        assert await released(store) == left


async def test_of_two_calls_at_once_that_make_a_circle_one_is_refused(store: Store, second: Opener) -> None:
    """So is a member that waits for what in turn waits for its batch, also over other jobs and batches."""
    other = await second()
    for _ in range(5):
        x, y = await opened(store, "then"), await opened(store, "then")
        answers = await asyncio.gather(
            store.enqueue([a_job(batch=x.id, waits_for=(y.id,))]),
            other.enqueue([a_job(batch=y.id, waits_for=(x.id,))]),
            return_exceptions=True,
        )
        assert [isinstance(answer, InvalidJob) for answer in answers].count(True) == 1, answers
        assert (await look(store, x)).total + (await look(store, y)).total == 1


async def test_a_crowd_behind_a_batch_is_not_looked_through(store: Store) -> None:
    """So is one that waits for a held job or a batch, when more than `BEHIND_READ` jobs and batches wait for its own."""
    batch, other = await opened(store, "then"), await opened(store, "then")
    await store.enqueue([a_job(waits_for=(batch.id,)) for _ in range(BEHIND_READ)])
    with pytest.raises(InvalidJob, match="more than 10,000 jobs and batches that wait for it: too many to see"):
        await store.enqueue([a_job(batch=batch.id, waits_for=(other.id,))])
    await store.enqueue([a_job(batch=batch.id, waits_for=(await add(store),)), a_job(batch=other.id, waits_for=(batch.id,))])
    assert (await look(store, batch)).total == 1
