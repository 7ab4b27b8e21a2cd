"""What is sent twice: ids and requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hawser.errors import IdConflict, QueueFull, RequestConflict
from hawser.job import State
from hawser.limit import Limit
from hawser.store import REQUEST_KEPT, Enqueued, RequestKey, Retention, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Ending,
    Opener,
    a_job,
    add,
    dead,
    done,
    ids,
    running,
    seen,
    take,
    take_one,
    write,
)

OTHER_JOBS = ({"task": "other"}, {"queue": "other"}, {"body": b'{"n": 2}'})
"""What makes another job."""


def a_request(key: str = "r", caller: str = "ann", digest: bytes = b"1" * 32) -> RequestKey:
    return RequestKey(caller, key, digest)


@pytest.mark.parametrize("other", OTHER_JOBS, ids=["task", "queue", "payload"])
async def test_an_id_of_another_job_is_refused(store: Store, other: dict[str, Any]) -> None:
    """`IdConflict` is raised, and nothing is written, when that id belongs to a job of another task, queue or payload."""
    id = await add(store, body=b'{"n": 1}')
    before = await seen(store, id)
    wrong, beside = a_job(**{"id": id, "body": b'{"n": 1}', "key": "k", **other}), a_job()
    with pytest.raises(IdConflict, match=id):
        await store.enqueue([beside, wrong])
    assert await seen(store, id) == before
    assert await store.get(beside.id) is None
    assert (await store.stats()).keys == 0


@pytest.mark.parametrize("end", [done, dead])
async def test_an_id_of_another_job_is_refused_after_its_end(store: Store, end: Ending) -> None:
    """`IdConflict` is raised, and nothing is written, when that id belongs to a job of another task, queue or payload."""
    claimed = await running(store)
    await write(store, end(claimed))
    with pytest.raises(IdConflict, match=claimed.id):
        await store.enqueue([a_job(id=claimed.id, body=b"2")])
    assert await store.enqueue([a_job(id=claimed.id)]) == [Enqueued(claimed.id, False)]


async def test_an_id_twice_in_one_call_for_two_jobs_is_refused(store: Store) -> None:
    """`IdConflict` is raised, and nothing is written, when that id belongs to a job of another task, queue or payload."""
    job = a_job()
    with pytest.raises(IdConflict, match=job.id):
        await store.enqueue([job, a_job(id=job.id, body=b"2")])
    assert await store.get(job.id) is None


async def test_a_payload_is_the_same_however_it_is_written(store: Store) -> None:
    """`IdConflict` is raised, and nothing is written, when that id belongs to a job of another task, queue or payload."""
    id = await add(store, body=b'{"a": 1, "b": [true, "\\u00e9"]}')
    again = a_job(id=id, body='{"b":[true,"\u00e9"],"a":1}'.encode())
    twice = a_job(body=b"[1]")
    answers = await store.enqueue([again, twice, a_job(id=twice.id, body=b"[ 1 ]")])
    assert answers == [Enqueued(id, False), Enqueued(twice.id, True), Enqueued(twice.id, False)]
    assert (await seen(store, id)).body == b'{"a": 1, "b": [true, "\\u00e9"]}'
    with pytest.raises(IdConflict):
        await store.enqueue([a_job(id=id, body=b'{"a": 1, "b": [1, "\\u00e9"]}')])


async def test_an_id_of_another_job_refuses_only_its_own_call(store: Store) -> None:
    """`IdConflict` is raised, and nothing is written, when that id belongs to a job of another task, queue or payload."""
    id = await add(store)
    calls = [store.enqueue([a_job(id=id, body=b"2") if n % 5 == 0 else a_job()]) for n in range(25)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, IdConflict) for answer in answers] == [n % 5 == 0 for n in range(25)]
    assert len(await take(store)) == 21


async def test_a_repeated_request_answers_as_the_first_time(store: Store, reopen: Opener) -> None:
    """A request that its caller made before adds nothing, and the answers have the jobs of the first time."""
    holder = await add(store, key="k")
    first = [a_job(), a_job(key="k"), a_job()]
    answers = await store.enqueue(first, a_request())
    assert answers == [Enqueued(first[0].id, True), Enqueued(holder, False), Enqueued(first[2].id, True)]
    for claimed in await take(store):
        await write(store, done(claimed, keep=False))
    store = await reopen()
    again = [a_job(), a_job(key="k"), a_job()]
    assert await store.enqueue(again, a_request()) == [Enqueued(answer.id, False) for answer in answers]
    assert await take(store) == []
    assert await holder_free(store)


async def holder_free(store: Store) -> bool:
    return (await store.stats()).keys == 0


async def test_each_caller_has_requests_of_its_own(store: Store) -> None:
    """A request that its caller made before adds nothing, and the answers have the jobs of the first time."""
    jobs = [a_job() for _ in range(4)]
    asked = [a_request(), a_request(caller="bob"), a_request("other"), a_request(caller="annr", key="")]
    answers = [await store.enqueue([job], request) for job, request in zip(jobs, asked, strict=True)]
    assert answers == [[Enqueued(job.id, True)] for job in jobs]


async def test_fifty_requests_at_once_with_one_key_make_one_job(store: Store, second: Opener) -> None:
    """A request that its caller made before adds nothing, and the answers have the jobs of the first time."""
    handles = [store, await second(), await second(), await second()]
    answers = await asyncio.gather(*(handles[n % 4].enqueue([a_job(), a_job()], a_request()) for n in range(50)))
    assert sum(answer.created for pair in answers for answer in pair) == 2
    assert len({tuple(answer.id for answer in pair) for pair in answers}) == 1
    assert len(await take(store)) == 2


async def test_a_key_of_another_request_is_refused(store: Store) -> None:
    """`RequestConflict` is raised, and nothing is written, when the caller gave its key to another request."""
    job, other = a_job(), a_job()
    await store.enqueue([job], a_request())
    with pytest.raises(RequestConflict, match="'r'"):
        await store.enqueue([other], a_request(digest=b"2" * 32))
    assert await store.get(other.id) is None
    assert await store.enqueue([a_job()], a_request()) == [Enqueued(job.id, False)]


async def test_a_request_that_was_refused_may_be_made_again(store: Store) -> None:
    """A request that its caller made before adds nothing, and the answers have the jobs of the first time."""
    id = await add(store)
    with pytest.raises(IdConflict):
        await store.enqueue([a_job(id=id, body=b"2")], a_request())
    await store.set_limit(Target("queue", "default"), Limit(max_depth=1), SIGN)
    with pytest.raises(QueueFull):
        await store.enqueue([a_job()], a_request())
    await store.set_limit(Target("queue", "default"), Limit(), SIGN)
    job = a_job()
    assert await store.enqueue([job], a_request(digest=b"2" * 32)) == [Enqueued(job.id, True)]


@pytest.mark.parametrize("pruned", [False, True])
async def test_a_request_is_remembered_for_its_time_when_its_job_is_gone(store: Store, clock: ManualClock, pruned: bool) -> None:
    """A request is remembered for `REQUEST_KEPT` seconds and as long as one of its jobs is kept."""
    [first] = await store.enqueue([a_job()], a_request())
    await write(store, done(await take_one(store), keep=False))
    clock.advance(REQUEST_KEPT - 1)
    await store.prune(Retention(), {}, 10)
    assert await store.enqueue([a_job()], a_request()) == [Enqueued(first.id, False)]
    clock.advance(2)
    if pruned:
        await store.prune(Retention(), {}, 10)
    job = a_job()
    assert await store.enqueue([job], a_request(digest=b"2" * 32)) == [Enqueued(job.id, True)]


@pytest.mark.parametrize("state", [State.READY, State.DONE, State.DEAD])
async def test_a_request_is_remembered_as_long_as_its_job_is_kept(store: Store, clock: ManualClock, state: State) -> None:
    """A request is remembered for `REQUEST_KEPT` seconds and as long as one of its jobs is kept."""
    gone, kept = a_job(), a_job(delay=1)
    await store.enqueue([gone, kept], a_request())
    await write(store, done(await take_one(store), keep=False))
    clock.advance(2)
    if state is not State.READY:
        await write(store, (done if state is State.DONE else dead)(await take_one(store)))
    for _ in range(3):
        clock.advance(REQUEST_KEPT)
        await store.prune(Retention(), {}, 10)
        assert await store.enqueue([a_job(), a_job()], a_request()) == [Enqueued(gone.id, False), Enqueued(kept.id, False)]
    if state is not State.READY:
        clock.advance(40 * REQUEST_KEPT)
        assert await store.prune(Retention(), {}, 10) == 1
        assert [answer.created for answer in await store.enqueue([a_job(), a_job()], a_request())] == [True, True]


async def test_a_request_for_more_jobs_than_go_together_is_one(store: Store) -> None:
    """A request that its caller made before adds nothing, and the answers have the jobs of the first time."""
    jobs = [a_job() for _ in range(2_500)]
    assert await store.enqueue(jobs, a_request()) == [Enqueued(job.id, True) for job in jobs]
    again = await store.enqueue([a_job() for _ in jobs], a_request())
    assert [answer.id for answer in again] == ids(jobs)
    assert not any(answer.created for answer in again)


async def test_it_is_known_which_jobs_and_requests_were_made(store: Store, second: Opener) -> None:
    """Whether `enqueue` would add none of these jobs, because the request was made before or every id is known; nothing is
    written."""
    one, other, new = a_job(), a_job(), a_job()
    assert not await store.made([one], a_request())
    await store.enqueue([one], a_request())
    await store.enqueue([other])
    elsewhere = await second()
    assert await elsewhere.made([one, other])
    assert not await elsewhere.made([one, new])
    assert await elsewhere.made([new], a_request())
    assert await elsewhere.made([new], a_request(digest=b"2" * 32)), "enqueue says what is wrong with it"
    assert not await elsewhere.made([new], a_request("other"))
    assert not await elsewhere.made([new], a_request(caller="bob"))
    assert (await store.stats()).ready == 2


async def test_a_request_that_is_forgotten_was_not_made(store: Store, clock: ManualClock) -> None:
    """Whether `enqueue` would add none of these jobs, because the request was made before or every id is known; nothing is
    written."""
    await store.enqueue([a_job()], a_request())
    await write(store, done(await take_one(store), keep=False))
    clock.advance(REQUEST_KEPT - 1)
    assert await store.made([a_job()], a_request())
    clock.advance(1)
    assert not await store.made([a_job()], a_request())
