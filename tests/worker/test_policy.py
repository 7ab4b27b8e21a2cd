"""What a queue says of how its jobs are run, and what goes before it."""

import asyncio

import pytest

from hawser import ConfigError, Exponential, Fixed, Hawser, Job, Linear, State
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import Share
from hawser.worker.policies import POLICIES_READ_EVERY_S, Policies
from tests.worker.conftest import ended, until, working

HOUR = Fixed(every=3600, jitter="none")


def wait_of(job: Job) -> float:
    ended_at = job.attempts[-1].ended_at
    assert ended_at is not None
    return (job.run_at - ended_at).total_seconds()


async def test_attempts_come_from_the_job_else_its_task_else_its_queue_else_the_default(app: Hawser):
    @app.task(queue="set", max_attempts=4)
    async def says() -> None: ...

    @app.task(queue="set")
    async def says_nothing() -> None: ...

    await app.aset_policy("set", max_attempts=3)
    handles = [
        await says.using(max_attempts=2).aenqueue(),
        await says.aenqueue(),
        await says_nothing.aenqueue(),
        await says_nothing.using(queue="other").aenqueue(),
    ]
    assert [(await app.aget(handle.id)).max_attempts for handle in handles] == [2, 4, 3, 5]


async def test_the_wait_comes_from_the_task_else_its_queue_else_the_default(app: Hawser):
    @app.task(backoff=HOUR)
    async def says() -> None:
        raise ValueError

    @app.task
    async def says_nothing() -> None:
        raise ValueError

    await app.aset_policy("default", backoff=Fixed(every=7200, jitter="none"))
    first, second = await says.aenqueue(), await says_nothing.aenqueue()
    third = await says_nothing.using(queue="other").aenqueue()
    async with working(app, queues=["default", "other"]):
        jobs = [await until(lambda job: bool(job.errors), app, handle.id) for handle in (first, second, third)]
    assert [round(wait_of(job)) for job in jobs[:2]] == [3600, 7200]
    assert 0 <= wait_of(jobs[2]) <= 30


async def test_a_queue_runs_no_more_at_once_than_its_policy_says(app: Hawser):
    running, most = 0, 0
    go = asyncio.Event()

    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    tasks = [app.task(name=name, queue="narrow")(busy) for name in ("one", "two")]
    free = app.task(name="free")(busy)
    await app.aset_policy("narrow", concurrency=2)
    handles = await app.aenqueue_many([task.job() for task in tasks for _ in range(5)])
    async with working(app, queues=["narrow", "default"], slots=20):
        await until(lambda job: job.state is State.RUNNING, app, handles[0].id)
        other = await free.aenqueue()
        await until(lambda job: job.state is State.RUNNING, app, other.id)
        assert (await app.astats("narrow")).running == 2
        go.set()
        for handle in handles:
            await ended(app, handle.id)
    assert most == 3


async def test_a_worker_hears_of_a_change_without_a_restart(app: Hawser):
    go = asyncio.Event()

    @app.task
    async def busy() -> None:
        await go.wait()

    handles = await app.aenqueue_many([busy.job() for _ in range(6)])
    await app.aset_policy("default", concurrency=1)
    async with working(app, slots=20):
        await until(lambda job: job.state is State.RUNNING, app, handles[0].id)
        assert (await app.astats()).running == 1
        await app.aset_policy("default", concurrency=4)
        async with asyncio.timeout(POLICIES_READ_EVERY_S + 3):
            while (await app.astats()).running < 4:
                await asyncio.sleep(0.02)
        go.set()
        for handle in handles:
            await ended(app, handle.id)


async def test_a_worker_whose_slots_are_all_taken_hears_of_a_change_too(app: Hawser):
    heard = asyncio.Event()

    @app.task
    async def fails() -> None:
        await heard.wait()
        raise ValueError

    handle = await fails.aenqueue()
    store = await app.store()
    async with working(app, slots=1):
        await until(lambda job: job.state is State.RUNNING, app, handle.id)
        await app.aset_policy("default", backoff=HOUR)
        reads, policies = 0, store.policies

        async def counted():
            nonlocal reads
            reads += 1
            return await policies()

        store.policies = counted  # type: ignore[method-assign]
        async with asyncio.timeout(POLICIES_READ_EVERY_S * 3):
            while not reads:
                await asyncio.sleep(0.02)
        heard.set()
        job = await until(lambda job: bool(job.errors), app, handle.id)
    assert round(wait_of(job)) == 3600


async def test_policies_are_read_again_only_after_a_while(app: Hawser):
    now = 0.0
    store = await app.store()
    policies = Policies(store, clock=lambda: now)
    await policies.refresh()
    await app.aset_policy("mail", concurrency=2)
    now += POLICIES_READ_EVERY_S / 2
    await policies.refresh()
    assert policies.of("mail") is None
    now += POLICIES_READ_EVERY_S
    await policies.refresh()
    assert policies.of("mail") == QueuePolicy(concurrency=2)
    assert policies.bound([Share("mail", 3), Share("other")], {"mail": 1}) == [Share("mail", 3, 1), Share("other")]
    assert policies.bound([Share("mail")], {"mail": 5}) == [Share("mail", None, 0)]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"max_attempts": 0}, "max_attempts: 0 is not a whole number from 1"),
        ({"max_attempts": 2.0}, "max_attempts: 2.0"),
        ({"concurrency": True}, "concurrency: True"),
        ({"concurrency": 10_001}, "concurrency: 10001"),
        ({"ageing": 0}, r"ageing: 0 is not a number of seconds from 1 to 31536000; None is strict priority"),
        ({"ageing": float("nan")}, "ageing: nan"),
        ({"ageing": True}, "ageing: True"),
        ({"ageing": "10m"}, "ageing: '10m'"),
        ({"backoff": 30}, "backoff: 30 cannot be kept in a store; use Exponential, Linear or Fixed"),
    ],
)
async def test_a_wrong_policy_is_refused_and_nothing_is_written(app: Hawser, fields, text):
    with pytest.raises(ConfigError, match=text):
        await app.aset_policy("mail", **fields)
    assert await (await app.store()).audit() == []


async def test_a_policy_is_replaced_as_a_whole(app: Hawser):
    store = await app.store()
    for backoff in (Exponential(base=1), Linear(step=2), Fixed(every=3)):
        await app.aset_policy("mail", backoff=backoff)
        assert (await store.policies())["mail"] == QueuePolicy(backoff=backoff)
    await app.aset_policy("mail", ageing=None)
    assert (await store.policies())["mail"] == QueuePolicy(ageing=None)
    await app.aset_policy("mail")
    assert (await store.policies()).get("mail", NO_POLICY) == NO_POLICY
