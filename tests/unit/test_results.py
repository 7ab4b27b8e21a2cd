"""Waiting for the results of jobs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.until import until

from hawser import ConfigError, Context, Handle, Hawser, JobFailed, JobNotFound, ResultTimeout, Retention
from hawser.errors import StoreUnavailable
from hawser.outcome import Cancelled, Dead, Done, Failure, Outcome
from hawser.store import JobEnd, Settlement, Share
from hawser.value.ids import new_id


class Point(msgspec.Struct):
    """What a task returns."""

    x: int
    y: int


def make_app(url: str) -> Hawser:
    app = Hawser(url)

    @app.task
    def point(x: int) -> Point:
        return Point(x, 2 * x)

    @app.task
    async def number(n: int) -> int:
        return n

    @app.task(max_attempts=1)
    def broken() -> int:
        raise ValueError("no such user")

    @app.task(retention=Retention(done=0))
    def forgotten() -> int:
        return 1

    @app.task
    def asking(ctx: Context, id: str) -> str:
        with pytest.raises(ResultTimeout):
            Handle(id, task="number", source=app.results).result(timeout=0)
        return "asked"

    return app


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Hawser:
    return make_app("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")


async def settle(app: Hawser, handle: Handle[int], outcome: Outcome) -> None:
    store = await app.store()
    [job] = await store.claim([Share("default")], 1, "w", 60)
    assert job.id == handle.id
    await store.settle([Settlement(job.id, job.lease, outcome)])


async def test_a_coroutine_gets_what_a_worker_elsewhere_returned(app: Hawser):
    async with app:
        handle = await app.tasks["point"].aenqueue(3)
        waiting = asyncio.ensure_future(handle.wait(timeout=30))
        await settle(app, handle, Done(b'{"x":3,"y":6}'))
        assert await waiting == Point(3, 6)
        assert await handle.wait() == Point(3, 6), "also when the job had ended before"


async def test_jobs_that_end_in_this_process_are_told_at_once(app: Hawser):
    async with app, app.worker():
        assert await asyncio.gather(*[(await app.tasks["number"].aenqueue(n)).wait(30) for n in range(20)]) == list(range(20))


def test_a_thread_gets_the_result(app: Hawser):
    with app:
        handle = app.tasks["point"].enqueue(3)
        later = threading.Timer(0.05, lambda: asyncio.run(settle(app, handle, Done(b'{"x":3,"y":6}'))))
        later.start()
        assert handle.result() == Point(3, 6)
        later.join(30)


async def test_a_failed_job_says_why(app: Hawser):
    async with app:
        handle = await app.tasks["broken"].aenqueue()
        await settle(app, handle, Dead(Failure("ValueError: no such user")))
        with pytest.raises(JobFailed, match=f"job {handle.id} is dead: ValueError: no such user") as failed:
            await handle.wait(30)
        assert (failed.value.id, failed.value.state, failed.value.error) == (handle.id, "dead", "ValueError: no such user")
        handle = await app.tasks["number"].aenqueue(1)
        await settle(app, handle, Cancelled("not wanted"))
        with pytest.raises(JobFailed, match="is cancelled: not wanted"):
            await handle.wait(30)


async def test_a_job_that_takes_longer_goes_on(app: Hawser):
    async with app:
        handle = await app.tasks["number"].aenqueue(1)
        with pytest.raises(ResultTimeout, match=f"job {handle.id} has not ended within 0.05 s. It goes on"):
            await handle.wait(timeout=0.05)
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(handle.result, timeout=0.05)
        await settle(app, handle, Done(b"1"))
        assert await handle.wait() == 1


async def test_a_task_that_keeps_nothing_says_so_at_once(app: Hawser):
    async with app:
        handle = await app.tasks["forgotten"].aenqueue()
        for wait in (handle.result, lambda: asyncio.run(handle.wait())):
            with pytest.raises(ConfigError, match=r"done jobs of task 'forgotten' are not kept .* retention=Retention"):
                await asyncio.to_thread(wait)


async def test_what_is_not_there_and_what_is_no_time_is_named(app: Hawser):
    async with app:
        with pytest.raises(JobNotFound):
            await Handle(new_id(), task="number", source=app.results).wait()
        handle = await app.tasks["number"].aenqueue(1)
        for timeout in (-1, "5", True, float("nan")):
            with pytest.raises(ConfigError, match="timeout: "):
                await handle.wait(timeout)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="belongs to no app"):
            await Handle(new_id()).wait()


async def test_a_handler_that_waits_is_warned_once(app: Hawser, caplog: pytest.LogCaptureFixture):
    async with app:
        other = await app.tasks["number"].using(queue="idle").aenqueue(1)
        async with app.worker():
            with caplog.at_level(logging.WARNING, "hawser.app"):
                for _ in range(2):
                    assert await (await app.tasks["asking"].aenqueue(other.id)).wait(30) == "asked"
        assert [record.levelname for record in caplog.records if "its slot is taken meanwhile" in record.message] == ["WARNING"]


class Counting:
    """A store whose reads of ends are counted, and which may be away."""

    def __init__(self, store: object) -> None:
        self._store = store
        self.reads: list[int] = []
        self.away = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def ended(self, ids: Sequence[str]) -> list[JobEnd | None]:
        self.reads.append(len(ids))
        if self.away:
            raise StoreUnavailable("gone for a walk")
        return await self._store.ended(ids)  # type: ignore[attr-defined,no-any-return]


async def test_many_who_wait_cost_one_read(tmp_path: Path):
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")
    async with app:
        counting = Counting(await app.store())
        app._connection.store = counting  # type: ignore[assignment]
        handles = await app.aenqueue_many([app.tasks["number"].job(n) for n in range(500)])
        began = time.monotonic()
        waiting = [asyncio.ensure_future(handle.wait(30)) for handle in handles]
        await asyncio.sleep(0.2)  # what is measured: how often it looks in that time
        assert set(counting.reads) == {500}
        assert len(counting.reads) <= 7, "at 0, 10, 30, 70, 150 ms"
        store = await app.store()
        for job in await store.claim([Share("default")], 500, "w", 60):
            await store.settle([Settlement(job.id, job.lease, Done(b"5"))])
        assert await asyncio.gather(*waiting) == [5] * 500
        assert len(counting.reads) <= 10 + 3 * (time.monotonic() - began)
        assert app.results._watches == {}, "nothing is read for those who have their answer"


async def test_a_store_that_is_away_for_a_while_is_asked_again(app: Hawser):
    async with app:
        counting = Counting(await app.store())
        app._connection.store = counting  # type: ignore[assignment]
        handle = await app.tasks["number"].aenqueue(1)
        counting.away = True
        with pytest.raises(ResultTimeout, match="the store could not be asked: gone for a walk"):
            await handle.wait(0.05)
        asked = len(counting.reads)
        waiting = asyncio.ensure_future(handle.wait(30))
        await until(lambda: asyncio.sleep(0, len(counting.reads) > asked))
        counting.away = False
        await settle(app, handle, Done(b"1"))
        assert await waiting == 1


async def test_one_who_gives_up_leaves_the_others_waiting(app: Hawser):
    async with app:
        counting = Counting(await app.store())
        app._connection.store = counting  # type: ignore[assignment]
        handle = await app.tasks["number"].aenqueue(1)
        first, second = (asyncio.ensure_future(handle.wait(30)) for _ in range(2))
        await until(lambda: asyncio.sleep(0, len(counting.reads) > 0))
        first.cancel()
        await settle(app, handle, Done(b"1"))
        assert await second == 1
        assert first.cancelled()


def test_handles_are_equal_when_they_name_the_same(app: Hawser):
    assert Handle("a") == Handle("a", source=app.results)
    assert Handle("a") != Handle("a", created=False)
    assert len({Handle("a"), Handle("a", task="x")}) == 1
    assert repr(Handle("a", source=app.results)) == "Handle(id='a', created=True)"
