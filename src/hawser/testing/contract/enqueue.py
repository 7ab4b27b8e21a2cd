"""Enqueue: all or none, durable, in order, once per id."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from hawser.clock import from_datetime
from hawser.errors import QueueFull
from hawser.job import FOREVER, State
from hawser.limit import Limit
from hawser.store import Enqueued, Filter, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Ending,
    Opener,
    a_job,
    add,
    dead,
    done,
    failed,
    ids,
    now,
    running,
    seen,
    take,
    take_one,
    write,
)
from hawser.value.ids import new_id

BODIES = [
    b"{}",
    b"null",
    b"-0.0",
    b'{ "spaces" :  [1 ,2] }\n',
    b'{"again": 1, "again": 2}',
    b"123456789012345678901234567890.10",
    '"\u00e9\u4e2d\U0001f6a2 \\u0000 \\"quoted\\" \' %s $1 ?"'.encode(),
    b'"' + b"x" * 65_000 + b'"',
]


async def test_the_answers_stand_in_the_order_of_the_jobs(store: Store) -> None:
    """Add jobs, all or none, durably before it returns; the answers stand in the order of the jobs."""
    old = a_job(key="k")
    await store.enqueue([old])
    new = [a_job(), a_job(key="k"), a_job(key="l"), old, a_job(key="l"), a_job()]
    assert await store.enqueue(new) == [
        Enqueued(new[0].id, True),
        Enqueued(old.id, False),
        Enqueued(new[2].id, True),
        Enqueued(old.id, False),
        Enqueued(new[2].id, False),
        Enqueued(new[5].id, True),
    ]


async def test_a_thousand_jobs_in_one_call_are_all_there(store: Store) -> None:
    """Add jobs, all or none, durably before it returns; the answers stand in the order of the jobs."""
    jobs = [a_job() for _ in range(1000)]
    assert await store.enqueue(jobs) == [Enqueued(job.id, True) for job in jobs]
    assert (await store.stats("default")).ready == 1000
    assert ids(await take(store, 1000)) == ids(jobs)


async def test_no_jobs_are_no_work(store: Store) -> None:
    """Add jobs, all or none, durably before it returns; the answers stand in the order of the jobs."""
    assert await store.enqueue([]) == []


async def test_an_accepted_job_outlives_its_store(store: Store, reopen: Opener) -> None:
    """Add jobs, all or none, durably before it returns; the answers stand in the order of the jobs."""
    id = await add(store)
    store = await reopen()
    assert (await take_one(store)).id == id


async def test_a_refused_batch_leaves_no_job_behind(store: Store) -> None:
    """Add jobs, all or none, durably before it returns; the answers stand in the order of the jobs."""
    await store.set_limit(Target("queue", "small"), Limit(max_depth=1), SIGN)
    jobs = [a_job(), a_job(queue="small"), a_job(queue="small"), a_job(queue="other")]
    with pytest.raises(QueueFull):
        await store.enqueue(jobs)
    assert [await store.get(job.id) for job in jobs] == [None] * 4
    assert (await store.find(Filter())).jobs == []
    assert (await store.stats()).ready == 0


async def test_an_operator_sees_a_job_as_it_was_given(store: Store, clock: ManualClock) -> None:
    parent = new_id()
    job = a_job(
        task="mail.send",
        body=b'{"to": "a@example.com"}',
        queue="mail",
        priority=9,
        delay=2.5,
        max_attempts=3,
        timeout=1.25,
        key="welcome:42",
        key_ttl=FOREVER,
        tags=["b", "a", "it's \u00e9"],
        parent_id=parent,
        confirm_replay=True,
    )
    await store.enqueue([job])
    stored = await seen(store, job.id)
    assert (stored.id, stored.task, stored.queue, stored.body) == (job.id, "mail.send", "mail", job.body)
    assert (stored.priority, stored.max_attempts, stored.timeout) == (9, 3, 1.25)
    assert (stored.key, stored.key_ttl, stored.tags) == ("welcome:42", FOREVER, ("b", "a", "it's \u00e9"))
    assert (stored.parent_id, stored.state, stored.attempt, stored.lease) == (parent, State.READY, 0, 0)
    assert (stored.enqueued_at, stored.run_at) == (now(clock), now(clock, 2.5))
    assert (stored.started_at, stored.finished_at, stored.lease_until, stored.worker) == (None, None, None, None)
    assert (stored.confirm_replay, stored.cancel_asked, stored.returned, stored.reason) == (True, False, 0, None)
    assert (stored.result_body, stored.progress_body, stored.attempts) == (None, None, ())


async def test_a_worker_gets_a_job_as_it_was_given(store: Store, clock: ManualClock) -> None:
    parent = new_id()
    job = a_job(task="t", body=b"[1]", queue="q", priority=0, key="k", tags=["x", "y"], parent_id=parent, timeout=0.5)
    await store.enqueue([job])
    enqueued_at = clock.now()
    clock.advance(3)
    claimed = await take_one(store, "q")
    assert (claimed.id, claimed.task, claimed.queue, claimed.body) == (job.id, "t", "q", b"[1]")
    assert (claimed.priority, claimed.attempt, claimed.max_attempts, claimed.timeout) == (0, 1, 5, 0.5)
    assert (claimed.key, claimed.tags, claimed.parent_id) == ("k", ("x", "y"), parent)
    assert (claimed.enqueued_at_us, claimed.run_at_us) == (enqueued_at, enqueued_at)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_a_payload_comes_back_byte_for_byte(store: Store, reopen: Opener, body: bytes) -> None:
    id = await add(store, body=body)
    assert (await seen(store, id)).body == body
    store = await reopen()
    claimed = await take_one(store)
    assert claimed.body == body
    await write(store, done(claimed, result=body))
    job = await seen(store, id)
    assert (job.body, job.result_body) == (body, body)


async def test_an_instant_is_kept_to_the_microsecond(store: Store) -> None:
    when = datetime(2026, 3, 29, 2, 30, 0, 123_457, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    id = await add(store, run_at=when)
    assert (await seen(store, id)).run_at == when


async def test_an_instant_in_the_past_is_due_at_once(store: Store) -> None:
    when = datetime(1999, 12, 31, tzinfo=UTC)
    await add(store, run_at=when)
    assert (await take_one(store)).run_at_us == from_datetime(when)


async def test_a_repeated_id_adds_nothing(store: Store) -> None:
    """A job whose id the store already has is not added again and not changed."""
    job = a_job()
    assert await store.enqueue([job]) == [Enqueued(job.id, True)]
    assert await store.enqueue([job]) == [Enqueued(job.id, False)]
    assert ids(await take(store)) == [job.id]


async def test_a_repeated_id_changes_nothing(store: Store, clock: ManualClock) -> None:
    """A job whose id the store already has is not added again and not changed."""
    id = await add(store, queue="q", body=b"1", key="k")
    before = await seen(store, id)
    clock.advance(5)
    other = a_job(id=id, queue="q", body=b"1", priority=9, delay=99, key="l", tags=["x"], max_attempts=1, timeout=1)
    assert await store.enqueue([other]) == [Enqueued(id, False)]
    assert await seen(store, id) == before
    assert (await take_one(store, "q")).body == b"1"


async def test_a_repeated_id_takes_no_key(store: Store) -> None:
    """A job whose id the store already has is not added again and not changed."""
    id = await add(store, key="a")
    await store.enqueue([a_job(id=id, key="b")])
    assert await add(store, key="b") != id


async def test_an_id_twice_in_one_call_is_one_job(store: Store) -> None:
    """A job whose id the store already has is not added again and not changed."""
    first = a_job(body=b"1", key="a")
    again = a_job(id=first.id, body=b"1", key="b")
    third = a_job(key="b", priority=0)
    answers = await store.enqueue([first, again, third])
    assert answers == [Enqueued(first.id, True), Enqueued(first.id, False), Enqueued(third.id, True)]
    assert [claimed.body for claimed in await take(store)] == [b"1", b"{}"]


async def test_a_repeated_id_leaves_a_run_alone(store: Store) -> None:
    """A job whose id the store already has is not added again and not changed."""
    job = a_job()
    await store.enqueue([job])
    claimed = await take_one(store)
    before = await seen(store, job.id)
    assert await store.enqueue([job]) == [Enqueued(job.id, False)]
    assert await seen(store, job.id) == before
    await write(store, done(claimed))


@pytest.mark.parametrize("end", [done, dead, failed])
async def test_a_repeated_id_does_not_bring_a_job_back(store: Store, end: Ending) -> None:
    """A job whose id the store already has is not added again and not changed."""
    job = a_job(max_attempts=1)
    await store.enqueue([job])
    await write(store, end(await take_one(store)))
    before = await seen(store, job.id)
    assert await store.enqueue([job, job]) == [Enqueued(job.id, False)] * 2
    assert await seen(store, job.id) == before
    assert await take(store) == []


async def test_an_id_from_many_producers_at_once_is_one_job(store: Store, second: Opener) -> None:
    """A job whose id the store already has is not added again and not changed."""
    handles = [store, await second(), await second()]
    job = a_job()
    answers = await asyncio.gather(*(handles[i % 3].enqueue([job, a_job()]) for i in range(30)))
    assert sum(answer[0].created for answer in answers) == 1
    assert all(answer[0].id == job.id and answer[1].created for answer in answers)
    assert len(await take(store)) == 31


async def test_a_job_that_was_not_added_leaves_its_id_free(store: Store) -> None:
    """A job whose id the store already has is not added again and not changed."""
    holder = await add(store, key="k")
    late = a_job(key="k")
    assert await store.enqueue([late]) == [Enqueued(holder, False)]
    assert await store.get(late.id) is None
    assert await add(store, id=late.id) == late.id


async def test_a_running_job_is_found_by_its_own_id_and_key(store: Store) -> None:
    """A job whose id the store already has is not added again and not changed."""
    claimed = await running(store, key="k")
    again = a_job(id=claimed.id, key="k")
    assert await store.enqueue([again]) == [Enqueued(claimed.id, False)]
