"""What the supervisor does for a process that has died: settle, blame, count and tell."""

import logging
import time

import pytest

from hawser import Hawser, State, StoreUnavailable
from hawser.job import Claimed
from hawser.store import Share
from hawser.supervisor.crash_recovery import DANGEROUS_FOR, SUSPECT_FOR, CrashRecovery
from hawser.supervisor.worker_process import WorkerProcess
from hawser.telemetry.meter import Meter
from hawser.testing import ManualClock
from hawser.upkeep.reclaimer import Reclaimer
from hawser.worker.board import Board, How
from hawser.worker.broadcast import BROADCAST_BYTES, Broadcast
from hawser.worker.options import checked


class Dead:
    """A process that died with these runs on its board; the event loop was in the first of them."""

    def __init__(self, runs: dict[How, list[Claimed]], *, inside: bool = True) -> None:
        options = checked()
        self.child = WorkerProcess(options)
        self.child.ready = True
        self.board = Board(self.child.memory, options.cells)
        self.cells = {}
        now = time.monotonic()
        for how, jobs in runs.items():
            for job in jobs:
                self.cells[job.id] = cell = self.board.take(job.id, job.lease, now, now + 60)
                self.board.start(cell, how)
        if inside:
            self.board.enter(next(iter(self.cells.values())))


@pytest.fixture
def broadcast() -> Broadcast:
    return Broadcast(bytearray(BROADCAST_BYTES))


@pytest.fixture
def recovery(broadcast: Broadcast) -> CrashRecovery:
    return CrashRecovery(broadcast, Meter())


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
    app: Hawser, recovery: CrashRecovery, broadcast: Broadcast, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    job, store = await claimed(app, "poison"), await app.store()
    dead = Dead({How.LOOP: [job]})

    async def unreadable(id):
        raise StoreUnavailable("no reads")

    with monkeypatch.context() as patched:
        patched.setattr(store, "get", unreadable)
        await recovery.settle(store, dead.child, -9, graceful=False)
    assert (await app.aget(job.id)).state is State.READY
    assert "could not settle" not in caplog.text
    assert broadcast.news() == frozenset({"poison"})


async def test_all_that_were_in_threads_are_suspects_until_one_of_them_crashes_a_process_of_its_own(
    app: Hawser, recovery: CrashRecovery, broadcast: Broadcast, caplog: pytest.LogCaptureFixture
):
    step, *threads = [await claimed(app, name) for name in ("step", "poison", "innocent")]
    idle, store = await claimed(app, "idle"), await app.store()
    dead = Dead({How.LOOP: [step, idle], How.THREAD: threads})
    await recovery.settle(store, dead.child, 7, graceful=False)
    assert broadcast.news() == frozenset({"step", "poison", "innocent"})
    assert "has crashed a process" not in caplog.text
    other = Dead({How.APART: [threads[0]]}, inside=False)
    other.board.crashed(next(iter(other.cells.values())))
    await recovery.hear(store, other.child)
    assert "task poison has crashed a process" in caplog.text
    recovery.forget(time.monotonic() + SUSPECT_FOR + 1)
    assert broadcast.news() == frozenset({"poison"})
    recovery.forget(time.monotonic() + DANGEROUS_FOR + 1)
    assert broadcast.news() == frozenset()


async def test_a_kill_from_outside_makes_no_task_a_suspect(app: Hawser, recovery: CrashRecovery, broadcast: Broadcast):
    dead = Dead({How.LOOP: [await claimed(app, "one"), await claimed(app, "another")]}, inside=False)
    await recovery.settle(await app.store(), dead.child, -9, graceful=False)
    assert broadcast.news() is None


async def test_of_a_process_that_was_killed_for_standing_still_only_those_pay_that_may_have_blocked_it(
    app: Hawser, recovery: CrashRecovery, broadcast: Broadcast
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
    await recovery.settle(await app.store(), dead.child, -9, graceful=False)
    after = {name: await app.aget(job.id) for name, job in jobs.items()}
    assert {name: job.attempt for name, job in after.items() if job.returned} == {"waits": 0, "apart": 0}
    errors = {name: str(job.errors[0]) for name, job in after.items() if job.errors}
    assert errors["is late"].startswith("timeout: the worker process stood still until the attempt's time was up")
    assert errors["blocks"].endswith("this one may have blocked it")
    assert errors["in a thread"].endswith("this one may have blocked it")
    assert {job.crashes for job in after.values()} == {0}
    assert broadcast.news() == frozenset({"blocks"}), "who is late is not to blame for that"


async def test_the_answer_of_the_store_is_all_that_must_be_known(
    app: Hawser, recovery: CrashRecovery, broadcast: Broadcast, monkeypatch: pytest.MonkeyPatch
):
    jobs, store = [await claimed(app, name) for name in ("poison", "other", "third")], await app.store()
    dead, asked = Dead({How.LOOP: jobs}), list[str]()
    monkeypatch.setattr(store, "get", asked.append)
    await recovery.settle(store, dead.child, -9, graceful=False)
    assert asked == [], "no job is read back: the next process starts at once"
    assert broadcast.news() == frozenset({"poison"})


async def test_a_job_that_dies_with_its_process_is_told_as_dead_and_one_that_does_not_as_failed(
    app: Hawser, recovery: CrashRecovery, caplog: pytest.LogCaptureFixture
):
    last, first = await claimed(app, "poison", max_attempts=1), await claimed(app, "poison", max_attempts=2)
    dead = Dead({How.LOOP: [last, first]})
    await recovery.settle(await app.store(), dead.child, 7, graceful=False)
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
    assert told.getMessage().startswith("job is dead: the lease ran out: worker the dead never renewed it")
    assert (await app.aget(first.id)).state is State.READY
