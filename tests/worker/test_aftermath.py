"""What the supervisor does for a process that has died: settle, blame, count and tell."""

import logging
import time

import pytest

from hawser import Hawser, State, StoreUnavailable
from hawser.job import Claimed
from hawser.store import Share
from hawser.telemetry.meter import Meter
from hawser.testing import ManualClock
from hawser.upkeep.reclaimer import Reclaimer
from hawser.worker.aftermath import DANGEROUS_FOR, SUSPECT_FOR, Aftermath
from hawser.worker.board import How
from hawser.worker.notice import SIZE, Notice
from hawser.worker.options import checked
from hawser.worker.process import Child


class Dead:
    """A process that died with these runs on its board; the event loop was in the first of them."""

    def __init__(self, runs: dict[How, list[Claimed]], *, inside: bool = True) -> None:
        self.child = Child(checked())
        self.child.ready = True
        self.cells = {}
        now = time.monotonic()
        for how, jobs in runs.items():
            for job in jobs:
                self.cells[job.id] = cell = self.child.board.take(job.id, job.lease, now, now + 60)
                self.child.board.start(cell, how)
        if inside:
            self.child.board.enter(next(iter(self.cells.values())))


@pytest.fixture
def notice() -> Notice:
    return Notice(bytearray(SIZE))


@pytest.fixture
def aftermath(notice: Notice) -> Aftermath:
    return Aftermath(notice, Meter())


async def claimed(app: Hawser, task: str, **settings) -> Claimed:
    """A running job of a task."""
    if task not in app.tasks:

        @app.task(name=task)
        async def nothing() -> None: ...

    handle = await app.tasks[task].using(**settings).aenqueue()
    [job] = await (await app.store()).claim([Share("default")], 1, "the dead", 30)
    assert job.id == handle.id
    return job


async def test_a_process_is_settled_for_and_its_culprit_known_although_the_store_can_write_and_not_read(
    app: Hawser, aftermath: Aftermath, notice: Notice, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    job, store = await claimed(app, "poison"), await app.store()
    dead = Dead({How.LOOP: [job]})
    get, away = store.get, True

    async def unreadable(id):
        if away:
            raise StoreUnavailable("no reads")
        return await get(id)

    monkeypatch.setattr(store, "get", unreadable)
    await aftermath.settle(store, dead.child, -9, graceful=False)
    await aftermath.finish(5)
    away = False
    assert (await app.aget(job.id)).state is State.READY
    assert "could not settle" not in caplog.text
    assert "cannot find out which task has crashed worker" in caplog.text
    assert "1 outcomes were written for it, but are not counted" in caplog.text
    assert notice.news() is None


async def test_all_that_were_in_threads_are_suspects_until_one_of_them_crashes_a_process_of_its_own(
    app: Hawser, aftermath: Aftermath, notice: Notice, caplog: pytest.LogCaptureFixture
):
    step, *threads = [await claimed(app, name) for name in ("step", "poison", "innocent")]
    idle, store = await claimed(app, "idle"), await app.store()
    dead = Dead({How.LOOP: [step, idle], How.THREAD: threads})
    await aftermath.settle(store, dead.child, 7, graceful=False)
    assert notice.news() == frozenset({"step", "poison", "innocent"})
    assert "has crashed a process" not in caplog.text
    other = Dead({How.APART: [threads[0]]}, inside=False).child
    other.board.crashed(next(iter(other.board.held())).cell)
    await aftermath.hear(store, other)
    assert "task poison has crashed a process" in caplog.text
    aftermath.forget(time.monotonic() + SUSPECT_FOR + 1)
    assert notice.news() == frozenset({"poison"})
    aftermath.forget(time.monotonic() + DANGEROUS_FOR + 1)
    assert notice.news() == frozenset()


async def test_a_kill_from_outside_makes_no_task_a_suspect(app: Hawser, aftermath: Aftermath, notice: Notice):
    dead = Dead({How.LOOP: [await claimed(app, "one"), await claimed(app, "another")]}, inside=False)
    await aftermath.settle(await app.store(), dead.child, -9, graceful=False)
    assert notice.news() is None


async def test_of_a_process_that_was_killed_for_standing_still_only_those_pay_that_may_have_blocked_it(
    app: Hawser, aftermath: Aftermath, notice: Notice
):
    names = ("blocks", "waits", "is late", "in a thread", "apart")
    jobs = {name: await claimed(app, name.replace(" ", "_")) for name in names}
    dead = Dead(
        {
            How.LOOP: [jobs["blocks"], jobs["waits"], jobs["is late"]],
            How.THREAD: [jobs["in a thread"]],
            How.APART: [jobs["apart"]],
        }
    )
    dead.child.hung = {jobs["is late"].id}
    await aftermath.settle(await app.store(), dead.child, -9, graceful=False)
    await aftermath.finish(5)
    after = {name: await app.aget(job.id) for name, job in jobs.items()}
    assert {name: job.attempt for name, job in after.items() if job.returned} == {"waits": 0, "apart": 0}
    errors = {name: str(job.errors[0]) for name, job in after.items() if job.errors}
    assert errors["is late"].startswith("timeout: the worker process stood still until the attempt's time was up")
    assert errors["blocks"].endswith("this one may have blocked it")
    assert errors["in a thread"].endswith("this one may have blocked it")
    assert {job.crashes for job in after.values()} == {0}
    assert notice.news() == frozenset({"blocks"}), "who is late is not to blame for that"


async def test_the_next_process_does_not_wait_until_all_is_counted(
    app: Hawser, aftermath: Aftermath, notice: Notice, monkeypatch: pytest.MonkeyPatch
):
    jobs, store = [await claimed(app, name) for name in ("poison", "other", "third")], await app.store()
    dead, asked = Dead({How.LOOP: jobs}), []
    get = store.get

    async def counted(id):
        asked.append(id)
        return await get(id)

    monkeypatch.setattr(store, "get", counted)
    await aftermath.settle(store, dead.child, -9, graceful=False)
    assert asked == [jobs[0].id], "only who is to blame must be known before"
    assert notice.news() == frozenset({"poison"})
    await aftermath.finish(5)
    assert sorted(asked[1:]) == sorted(job.id for job in jobs)


async def test_a_job_that_dies_with_its_process_is_told_as_dead_and_one_that_does_not_as_failed(
    app: Hawser, aftermath: Aftermath, caplog: pytest.LogCaptureFixture
):
    last, first = await claimed(app, "poison", max_attempts=1), await claimed(app, "poison", max_attempts=2)
    dead = Dead({How.LOOP: [last, first]})
    await aftermath.settle(await app.store(), dead.child, 7, graceful=False)
    await aftermath.finish(5)
    told = {record.job_id: (record.levelno, record.getMessage()) for record in caplog.records if hasattr(record, "job_id")}
    assert told == {
        last.id: (logging.ERROR, "job is dead: the worker process ended with exit code 7 while running"),
        first.id: (
            logging.WARNING,
            (
                "job failed, attempt 1 of 2, again in 1 s: "
                "the worker process ended with exit code 7 while running; another job is to blame"
            ),
        ),
    }


async def test_a_job_that_is_dead_by_a_reclaim_is_told(caplog: pytest.LogCaptureFixture):
    clock = ManualClock()
    app = Hawser("memory://", clock=clock)
    last, first = await claimed(app, "lost", max_attempts=1), await claimed(app, "lost", max_attempts=2)
    clock.advance(31)
    await Reclaimer(await app.store(), 1.0, app.events).turn()
    assert (await app.aget(last.id)).state is State.DEAD
    [told] = [record for record in caplog.records if hasattr(record, "job_id")]
    assert (told.__dict__["job_id"], told.__dict__["attempt"], told.levelno) == (last.id, 1, logging.ERROR)
    assert told.getMessage().startswith("job is dead: the lease ran out: worker the dead stopped renewing it")
    assert (await app.aget(first.id)).state is State.READY
