"""Debounced jobs: calls with one key become one job, with the newest payload."""

from __future__ import annotations

import asyncio

from hawser.clock import at, to_us
from hawser.job import NewJob, State
from hawser.store import Change, Enqueued, Filter, RequestKey, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    done,
    failed,
    ids,
    released,
    seen,
    take,
    take_one,
    write,
)

WAIT = 5.0


def call(n: int, **fields: object) -> NewJob:
    """The n-th call with a key."""
    return a_job(**{"key": "k", "debounce": WAIT, "body": b'{"n": %d}' % n, **fields})


async def put(store: Store, n: int, **fields: object) -> Enqueued:
    [answer] = await store.enqueue([call(n, **fields)])
    return answer


async def test_the_newest_payload_wins_and_puts_the_job_off(store: Store, clock: ManualClock) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    first = await put(store, 1)
    assert first.created
    assert not first.replaced
    for n in (2, 3, 4):
        clock.advance(WAIT - 1)
        assert await put(store, n) == Enqueued(first.id, False, True)
        assert await take(store) == []
    clock.advance(WAIT - 0.001)
    assert await take(store) == []
    clock.advance(0.001)
    claimed = await take_one(store)
    assert (claimed.id, claimed.body) == (first.id, b'{"n": 4}')
    await write(store, done(claimed))
    assert (await store.stats()).keys == 0


async def test_it_is_put_off_for_so_long_at_most(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    first = await put(store, 0, at_most=12)
    began = clock.now()
    store = await reopen()
    for n in range(1, 4):
        clock.advance(4)
        assert (await put(store, n, at_most=12)).replaced
    assert (await seen(store, first.id)).run_at == at(began + to_us(12))
    claimed = await take_one(store)
    assert (claimed.id, claimed.body) == (first.id, b'{"n": 3}')


async def test_one_that_is_due_and_waits_still_gets_the_newest_payload(store: Store, clock: ManualClock) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    first = await put(store, 1, at_most=6)
    clock.advance(60)
    assert await put(store, 2, at_most=6) == Enqueued(first.id, False, True)
    assert (await take_one(store)).body == b'{"n": 2}'


async def test_once_it_has_started_the_key_is_free(store: Store, clock: ManualClock) -> None:
    """Once it has started the key is free."""
    first = await put(store, 1)
    clock.advance(WAIT)
    claimed = await take_one(store)
    second = await put(store, 2)
    assert second.created
    await write(store, failed(claimed, 100))
    assert await put(store, 3) == Enqueued(second.id, False, True)
    assert (await seen(store, first.id)).body == b'{"n": 1}'
    clock.advance(WAIT)
    [again] = await take(store)
    assert (again.id, again.body) == (second.id, b'{"n": 3}')


async def test_a_run_that_was_handed_back_keeps_its_payload(store: Store, clock: ManualClock) -> None:
    """Once it has started the key is free."""
    first = await put(store, 1)
    clock.advance(WAIT)
    await write(store, released(await take_one(store)))
    second = await put(store, 2)
    assert second.created
    assert (await seen(store, first.id)).body == b'{"n": 1}'
    assert await put(store, 3) == Enqueued(second.id, False, True)


async def test_an_older_call_changes_nothing(store: Store, clock: ManualClock) -> None:
    """A call whose id is not above that of the newest changes nothing."""
    old, second, third = (call(n) for n in range(3))
    [first] = await store.enqueue([second])
    clock.advance(1)
    assert await store.enqueue([third]) == [Enqueued(first.id, False, True)]
    before = await seen(store, first.id)
    clock.advance(1)
    assert await store.enqueue([third]) == [Enqueued(first.id, False, True)]
    assert await store.enqueue([second]) == [Enqueued(first.id, False)]
    assert await store.enqueue([old]) == [Enqueued(first.id, False)]
    assert await seen(store, first.id) == before
    clock.advance(WAIT)
    claimed = await take_one(store)
    for job in (old, second, third):
        assert [answer.id for answer in await store.enqueue([job])] == [first.id]
    assert ids(await take(store)) == []
    await write(store, done(claimed))


async def test_of_one_call_with_several_the_newest_stays(store: Store, clock: ManualClock) -> None:
    """Of a call with several the newest stays."""
    jobs = [call(n) for n in range(3)]
    other = a_job()
    answers = await store.enqueue([jobs[0], other, jobs[2], jobs[1]])
    assert answers == [
        Enqueued(jobs[2].id, False),
        Enqueued(other.id, True),
        Enqueued(jobs[2].id, True),
        Enqueued(jobs[2].id, False),
    ]
    more = [call(n) for n in range(3, 5)]
    assert await store.enqueue(more) == [Enqueued(jobs[2].id, False), Enqueued(jobs[2].id, False, True)]
    clock.advance(WAIT)
    assert {claimed.body for claimed in await take(store)} == {b"{}", b'{"n": 4}'}


async def test_the_expiry_of_the_newest_counts(store: Store, clock: ManualClock) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    first = await put(store, 1, expires=6)
    clock.advance(4)
    await put(store, 2, expires=20)
    assert (await seen(store, first.id)).expires_at == at(clock.now() + to_us(20))
    clock.advance(6)
    await put(store, 3)
    assert (await seen(store, first.id)).expires_at is None
    clock.advance(100)
    assert (await take_one(store)).body == b'{"n": 3}'
    second = await put(store, 4)
    await put(store, 5, expires=6)
    clock.advance(7)
    assert await take(store) == []
    await store.expire(10)
    assert (await seen(store, second.id)).state is State.CANCELLED


async def test_arguments_that_jobs_are_found_by_go_with_the_payload(store: Store) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    first = await put(store, 1, index=("n=1",))
    await put(store, 2, index=("n=2",))
    assert (await seen(store, first.id)).index == ("n=2",)
    assert [job.id for job in (await store.find(Filter(argument="n=2"), limit=10)).jobs] == [first.id]
    assert (await store.find(Filter(argument="n=1"), limit=10)).jobs == []


async def test_a_key_of_another_kind_is_not_replaced(store: Store) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    plain = await add(store, key="k", delay=60)
    assert await put(store, 1) == Enqueued(plain, False)
    assert (await seen(store, plain)).body == b"{}"
    other = await put(store, 2, queue="other")
    assert other.created
    assert await store.enqueue([a_job(queue="other", key="k")]) == [Enqueued(other.id, False)]
    assert (await seen(store, other.id)).body == b'{"n": 2}'


async def test_a_group_hears_of_the_new_time(store: Store, clock: ManualClock) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    first = await put(store, 1, group="a")
    clock.advance(4)
    await put(store, 2, group="a")
    clock.advance(4)
    assert await take(store) == []
    clock.advance(1)
    assert [(claimed.id, claimed.group, claimed.body) for claimed in await take(store)] == [(first.id, "a", b'{"n": 2}')]
    sooner = await put(store, 1, group="b", key="sooner")
    await put(store, 2, group="b", key="sooner", debounce=1.0)
    clock.advance(1)
    assert [(claimed.id, claimed.group, claimed.body) for claimed in await take(store)] == [(sooner.id, "b", b'{"n": 2}')]


async def test_a_debounced_job_that_is_changed_goes_on_to_be_debounced(store: Store, clock: ManualClock) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    first = await put(store, 1)
    await store.change([first.id], Change(queue="other", priority=9), SIGN)
    assert await put(store, 2, queue="other") == Enqueued(first.id, False, True)
    clock.advance(WAIT)
    assert (await take_one(store, "other")).body == b'{"n": 2}'


async def test_counts_stay_true(store: Store, clock: ManualClock) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    await put(store, 1, at_most=6)
    for n in range(2, 6):
        clock.advance(3)
        await put(store, n, at_most=6)
    stats = await store.stats()
    assert (stats.ready, stats.keys) == (1, 1)
    await write(store, done(await take_one(store)))
    stats = await store.stats()
    assert (stats.ready, stats.running, stats.keys) == (0, 0, 0)


async def test_a_repeated_request_changes_nothing(store: Store, clock: ManualClock) -> None:
    """A request that its caller made before adds nothing, and the answers have the jobs of the first time."""
    request = RequestKey("app", "r1", b"1" * 32)
    [first] = await store.enqueue([call(1)], request)
    await put(store, 2)
    clock.advance(1)
    [again] = await store.enqueue([call(1)], request)
    assert again.id == first.id
    assert (await seen(store, first.id)).body == b'{"n": 2}'


async def test_of_many_calls_at_once_the_newest_wins(store: Store, second: Opener, clock: ManualClock) -> None:
    """
    A debounced job is due when no other has come with its key for `debounce` seconds: while it waits, the payload and expiry of
    the newest take the place of its own, and it is put off, until `at_most` seconds after the first at most.
    """
    stores = (store, await second())
    jobs = [call(n) for n in range(20)]
    answers = await asyncio.gather(*(stores[n % 2].enqueue([job]) for n, job in enumerate(jobs)))
    assert [answer.created for [answer] in answers].count(True) == 1
    assert len({answer.id for [answer] in answers}) == 1
    clock.advance(WAIT)
    assert [claimed.body for claimed in await take(store)] == [b'{"n": 19}']
