"""Which jobs a worker takes, and when."""

import asyncio
import os

import pytest

from hawser import Hawser, NewJob, State
from tests.worker.conftest import Heard, ended, until, working


async def test_a_tasks_own_limit_holds_and_costs_the_others_nothing(app: Hawser):
    now, most = 0, 0

    @app.task(concurrency=2, priority=9)
    async def capped() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)  # the work: more than two would overlap
        now -= 1

    @app.task
    async def free() -> None: ...

    capped_jobs = await app.aenqueue_many([capped.job() for _ in range(12)])
    free_jobs = await app.aenqueue_many([free.job() for _ in range(20)])
    async with working(app, slots=16):
        for handle in free_jobs:
            await ended(app, handle.id)
        assert (await app.aget(capped_jobs[-1].id)).state is State.READY, "the capped ones are not done yet"
        for handle in capped_jobs:
            await ended(app, handle.id)
        assert (await app.astats()).rates["returned"] == 0, "nothing was claimed only to be given back"
    assert most == 2


async def test_a_paused_task_is_not_started_and_the_pause_is_felt_at_once(app: Hawser):
    @app.task
    async def held() -> None: ...

    @app.task
    async def behind_it() -> None: ...

    await app.apause(task="held", reason="the printer is on fire")
    async with working(app):
        handle = await held.aenqueue()
        await ended(app, (await behind_it.aenqueue()).id)
        assert (await app.aget(handle.id)).state is State.READY
        await app.aresume(task="held")
        assert (await ended(app, handle.id, 2)).state is State.DONE


async def test_weights_share_the_places(app: Hawser):
    order = []

    async def note(queue: str) -> None:
        order.append(queue)

    task = app.task(name="note")(note)
    for queue in ("bulk", "default", "critical"):
        await app.aenqueue_many([task.using(queue=queue).job(queue) for _ in range(300)])
    async with working(app, queues="critical:6,default:3,bulk:1", slots=10, claim_batch=10):
        async with asyncio.timeout(10):
            while len(order) < 300:
                await asyncio.sleep(0.001)
    first = order[:300]
    assert 150 <= first.count("critical") <= 210
    assert 70 <= first.count("default") <= 110
    assert 15 <= first.count("bulk") <= 45


async def test_without_weights_the_first_queue_goes_first(app: Hawser):
    order = []

    async def note(queue: str) -> None:
        order.append(queue)

    task = app.task(name="note")(note)
    for queue in ("second", "first"):
        await app.aenqueue_many([task.using(queue=queue).job(queue) for _ in range(100)])
    async with working(app, queues=["first", "second"], slots=5, claim_batch=5):
        async with asyncio.timeout(10):
            while len(order) < 200:
                await asyncio.sleep(0.001)
    assert order == ["first"] * 100 + ["second"] * 100


async def test_workers_are_listed_while_they_live(app: Hawser, heard: Heard):
    store = await app.store()
    async with working(app, heard, slots=7):
        async with asyncio.timeout(5):
            while not (seen := await store.workers()):
                await asyncio.sleep(0.01)
        assert (seen[0].beat.slots, seen[0].beat.pid) == (7, os.getpid())
    assert await store.workers() == []


async def test_a_crowd_that_cannot_even_start_is_settled_all_the_same(app: Hawser):
    @app.task(max_attempts=1)
    async def renamed(new_name: str) -> None: ...

    store = await app.store()
    await store.enqueue([NewJob(task="renamed", body=b"{", max_attempts=1) for _ in range(3_000)])
    async with working(app, slots=1, claim_batch=2_000):
        async with asyncio.timeout(120):
            while (await store.stats()).dead < 3_000:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("away", [0.0, 0.003], ids=["a hint at once", "a hint over a network"])
async def test_jobs_that_find_no_room_here_do_not_keep_the_claimer_busy(app: Hawser, away: float):
    go = asyncio.Event()

    @app.task(concurrency=1)
    async def capped() -> None:
        await go.wait()

    store = await app.store()
    claims = 0
    claim, wait = store.claim, store.wait

    async def counted(*args, **kwargs):
        nonlocal claims
        claims += 1
        return await claim(*args, **kwargs)

    async def hinted(*args, **kwargs):
        await wait(*args, **kwargs)
        await asyncio.sleep(away)

    store.claim, store.wait = counted, hinted  # type: ignore[method-assign]
    handles = await app.aenqueue_many([capped.job() for _ in range(3)])
    async with working(app):
        await until(lambda job: job.state is State.RUNNING, app, handles[0].id)
        before = claims
        await asyncio.sleep(0.5)  # what is measured: how often it asks while there is no room
        assert claims - before < 20, f"{claims - before} claims in half a second, for nothing"
        go.set()
        for handle in handles:
            await ended(app, handle.id, 2)


async def test_no_more_is_claimed_than_can_start_at_once_however_short_the_jobs_are(app: Hawser):
    @app.task
    async def short() -> None: ...

    store = await app.store()
    claim, most = store.claim, 0

    async def looked_at(*args, **kwargs):
        nonlocal most
        claimed = await claim(*args, **kwargs)
        most = max(most, (await store.stats()).running)
        return claimed

    store.claim = looked_at  # type: ignore[method-assign]
    handles = await app.aenqueue_many([short.job() for _ in range(400)])
    async with working(app, slots=4):
        for handle in handles:
            assert (await ended(app, handle.id)).state is State.DONE
    assert most <= 8, "at most four run, and four outcomes are on their way"


async def test_nothing_is_claimed_ahead_of_a_free_slot(app: Hawser):
    """What waited in a process for a slot would lose an attempt with it, and would not have been started."""
    begun, go_on, done = asyncio.Semaphore(0), asyncio.Event(), 0

    @app.task
    async def work() -> None:
        nonlocal done
        begun.release()
        await go_on.wait()
        done += 1

    store = await app.store()
    claim, claimed, most = store.claim, 0, 0

    async def looked_at(*args, **kwargs):
        nonlocal claimed, most
        most = max(most, claimed - done + args[1])
        found = await claim(*args, **kwargs)
        claimed += len(found)
        return found

    store.claim = looked_at  # type: ignore[method-assign]
    handles = await app.aenqueue_many([work.job() for _ in range(12)])
    async with working(app, slots=4):
        for _ in range(4):
            await begun.acquire()
        go_on.set()
        for handle in handles:
            assert (await ended(app, handle.id)).state is State.DONE
    assert most == 4
