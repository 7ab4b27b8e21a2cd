"""Which queues and tasks a worker takes, and when it ends by itself."""

import asyncio
import logging
from pathlib import Path

import pytest

from hawser import ConfigError, Context, Fixed, Hawser, StoreUnavailable
from hawser.client.explain import why
from hawser.testing import Fault, FaultyStore
from hawser.worker.options import checked
from tests.worker import tasks
from tests.worker.conftest import ended, until
from tests.worker.processes import fleet


@pytest.fixture
def shop(app: Hawser) -> Hawser:
    @app.task(queue="mail")
    async def send_email(to: str) -> str:
        return to

    @app.task
    async def ship(order: int) -> int:
        return order

    return app


async def test_an_embedded_worker_runs_jobs_between_its_beginning_and_its_end(shop: Hawser):
    async with shop.worker(queues=["mail", "default"]):
        assert (await ended(shop, (await shop.aenqueue("ship", {"order": 1})).id)).result == 1
        running = await shop.aenqueue("send_email", {"to": "ann"})
    late = await shop.aenqueue("ship", {"order": 2})
    assert (await shop.aget(running.id)).state in ("done", "ready")
    assert (await shop.aget(late.id)).state == "ready"
    assert await (await shop.store()).workers() == []


async def test_an_embedded_worker_lets_what_runs_finish(app: Hawser):
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> str:
        began.set()
        await go_on.wait()
        return "finished"

    handle = await slow.aenqueue()
    async with app.worker() as worker:
        await began.wait()
        worker.stop()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    assert (await app.aget(handle.id)).result == "finished"


async def test_an_embedded_worker_begins_with_what_is_wrong():
    faulty = FaultyStore(Hawser("memory://")._connection.store)
    app = Hawser(faulty)
    faulty.next("open", Fault.REFUSE)
    with pytest.raises(StoreUnavailable):
        async with app.worker():
            pytest.fail("it must not begin")
    with pytest.raises(ConfigError, match="slots"):
        app.worker(slots=0)


async def test_a_burst_runs_until_nothing_is_due(app: Hawser):
    @app.task
    async def chain(ctx: Context, left: int) -> None:
        if left:
            ctx.enqueue(chain.job(left - 1))

    @app.task(backoff=Fixed(every=3600, jitter="none"))
    async def broken() -> None:
        raise ValueError

    for _ in range(20):
        await chain.aenqueue(5)
    failed = await broken.aenqueue()
    delayed = await chain.using(delay=3600).aenqueue(0)
    async with app.worker(burst=True) as worker:
        async with asyncio.timeout(20):
            await worker.wait()
    assert len((await app.afind(state="done", limit=500)).jobs) == 120
    assert (await app.aget(failed.id)).attempt == 1
    assert (await app.aget(delayed.id)).state == "ready"


async def test_a_worker_runs_the_tasks_that_were_chosen_and_never_takes_others(shop: Hawser):
    ship, mail = await shop.aenqueue("ship", {"order": 1}), await shop.aenqueue("send_email", {"to": "ann"})
    async with shop.worker(queues="mail,default", tasks="ship"):
        await ended(shop, ship.id)
        job = await shop.aget(mail.id)
        assert (job.lease, job.state) == (0, "ready"), "it was not even claimed"
        store = await shop.store()
        await until(lambda _: True, shop, mail.id)
        async with asyncio.timeout(10):
            while not (seen := await store.workers()):
                await asyncio.sleep(0.01)
        assert list(seen[0].beat.tasks or ()) == ["ship"]
    async with shop.worker(queues="mail,default", not_tasks=["ship"], burst=True) as worker:
        left = await shop.aenqueue("ship", {"order": 2})
        await ended(shop, mail.id)
        await worker.wait()
    assert (await shop.aget(left.id)).lease == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tasks": "shipp"}, "tasks: the app has no task 'shipp'.*ship"),
        ({"not_tasks": ["mail"]}, "not_tasks: the app has no task 'mail'"),
        ({"tasks": ["ship"], "not_tasks": ["ship"]}, "no task is left"),
    ],
)
async def test_tasks_that_do_not_exist_are_named(shop: Hawser, options, told):
    with pytest.raises(ConfigError, match=told):
        async with shop.worker(**options) as worker:
            await worker.wait()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tasks": "a b"}, "tasks: "),
        ({"not_tasks": 3}, "not_tasks: 3"),
        ({"queues": "a,*"}, r"needs weights"),
        ({"burst": "x"}, "burst"),
    ],
)
def test_bad_choices_are_refused(options, told):
    with pytest.raises(ConfigError, match=told):
        checked(**options)


async def test_a_star_serves_every_queue_also_a_new_one(shop: Hawser):
    handles = [await shop.aenqueue("ship", {"order": n}, queue=f"q{n}") for n in range(3)]
    async with shop.worker(queues="*"):
        for handle in [*handles, await shop.aenqueue("send_email", {"to": "ann"})]:
            await ended(shop, handle.id)
        await ended(shop, (await shop.aenqueue("ship", {"order": 9}, queue="brand-new")).id)


async def test_a_star_may_have_a_weight_beside_others(shop: Hawser):
    handles = [await shop.aenqueue("ship", {"order": n}, queue=queue) for n, queue in enumerate(["urgent", "other"])]
    async with shop.worker(queues="urgent:6,*:1"):
        for handle in handles:
            await ended(shop, handle.id)


async def test_a_job_knows_that_a_worker_of_all_queues_serves_it(shop: Hawser):
    store = await shop.store()
    async with shop.worker(queues="*"):
        async with asyncio.timeout(10):
            while not await store.workers():
                await asyncio.sleep(0.01)
        await shop.apause(task="ship")
        job = await shop.aget((await shop.aenqueue("ship", {"order": 1}, queue="odd")).id)
        assert "no living worker" not in str(await why(store, job, job.run_at))


async def test_a_queue_that_does_not_exist_is_named(shop: Hawser, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    async with shop.worker(queues=["mial", "default"], burst=True) as worker:
        await worker.wait()
    assert "queue mial is served here, but no task names it" in caplog.text
    assert "mail" in caplog.text


def test_a_burst_of_processes_ends_by_itself(tmp_path: Path):
    with fleet(tmp_path) as ships:
        app = Hawser(ships.url)
        task = app.task(name="nap")(tasks.nap.fn)
        handles = app.enqueue_many([task.job(0.01) for _ in range(40)])
        worker = ships.start("--burst", "--processes", "2", "--slots", "4", "--tasks", "nap", ready=False)
        assert worker.wait(60) == 0, ships.log(worker)
        assert {job.id for job in app.find(state="done", limit=100).jobs} == {handle.id for handle in handles}
        app.close()
