"""What a worker leaves to others, and when nobody is left to accept it."""

import asyncio
from typing import Any

import pytest

from hawser import Hawser, NewJob, State
from hawser.job import new_job
from hawser.outcome import Dead, Snoozed
from hawser.store import Actor, Beat, Settlement, Share, Store
from hawser.testing.clock import ManualClock
from hawser.worker import refusals as module
from hawser.worker.refusals import REFUSALS_LOOK_EVERY_S, REST, Refusals, marks
from tests.worker.conftest import until, working

HOUR = 3600.0


class Old:
    """The refusals of a worker of the old release. Its clock is that of the store."""

    def __init__(self, app: Hawser, store: Store, clock: ManualClock, name: str = "old") -> None:
        self.clock = clock
        self.store = store
        self.name = name
        self.marks = marks(app.tasks)
        self.refusals = Refusals(store, name, app.tasks, ["default"], HOUR, clock=lambda: clock.now() / 1_000_000)

    async def decline(self, id: str) -> Any:
        """Claim that one job and decline it; what the refusals make of it."""
        jobs = await self.store.claim([Share("default")], 10, self.name, 60, {}, self.refusals.leave)
        [job] = [job for job in jobs if job.id == id]
        return self.refusals.decline(job, "no")

    async def give_back(self, id: str) -> None:
        """Decline it, and write that, as a worker does before its next claim."""
        outcome = await self.decline(id)
        job = await self.store.get(id)
        assert job is not None
        await self.store.settle([Settlement(id, job.lease, outcome)])
        await self.refusals.refresh()

    async def after(self, seconds: float, *others: Beat) -> None:
        """So long, with these other workers alive all the time."""
        while seconds > 0:
            self.clock.advance(min(seconds, REFUSALS_LOOK_EVERY_S))
            seconds -= REFUSALS_LOOK_EVERY_S
            await self.store.beat([a_beat(self.name, self.marks), *others])
            await self.refusals.refresh()


def a_beat(worker: str, tasks: dict[str, str] | None = None, **fields: Any) -> Beat:
    about = {"host": "h", "pid": 1, "version": "1", "queues": ("default",), "slots": 1, "running": 0, **fields}
    return Beat(worker=worker, tasks=tasks, **about)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def old(clock: ManualClock) -> Old:
    app = Hawser("memory://", clock=clock)

    @app.task
    async def greet(name: str) -> None: ...

    return Old(app, await app.store(), clock)


async def a_stranger(old: Old, task: str = "new") -> str:
    job = new_job(task=task, body=b"{}")
    await old.store.enqueue([job])
    return job.id


async def test_a_declined_job_goes_back_at_once_and_is_not_asked_for_again(old: Old):
    id = await a_stranger(old)
    assert await old.decline(id) == Snoozed(0.0, "worker old cannot run it: no")
    assert old.refusals.leave.jobs == {id}


async def test_tasks_that_others_know_are_left_to_them(old: Old):
    await old.after(
        REFUSALS_LOOK_EVERY_S, a_beat("new", {"greet": "x", "new": "y"}), a_beat("far", {"far": "z"}, queues=("far",))
    )
    assert old.refusals.leave.tasks == {"new"}
    await old.after(REFUSALS_LOOK_EVERY_S, a_beat("new", {"greet": "x", "new": "y"}, draining=True))
    assert old.refusals.leave.tasks == frozenset(), "who drains takes no more"


async def test_a_job_that_nobody_accepts_is_dead_after_the_time(old: Old):
    id = await a_stranger(old)
    await old.give_back(id)
    await old.after(HOUR - 60)
    assert old.refusals.leave.jobs == {id}
    await old.after(61)
    assert old.refusals.leave.jobs == frozenset(), "it is asked for once more"
    dead = await old.decline(id)
    assert isinstance(dead, Dead)
    assert dead.failure.error == "no living worker accepted it for 3600 s: worker old cannot run it: no"


@pytest.mark.parametrize(
    ("other", "may"),
    [
        (a_beat("new", {"greet": "another"}), True),
        (a_beat("http"), True),
        (a_beat("far", {"greet": "another"}, queues=("far",)), False),
        (a_beat("stranger", {"other": "x"}), False),
    ],
)
async def test_who_may_accept_a_job_gives_it_more_time(old: Old, other: Beat, may: bool):
    id = await a_stranger(old, "greet")
    await old.give_back(id)
    await old.after(HOUR + 60, other)
    assert bool(old.refusals.leave.jobs) is may
    await old.store.beat([], [other.worker])
    await old.after(HOUR + 60)
    assert not old.refusals.leave.jobs


async def test_the_same_signature_elsewhere_would_decline_it_too(old: Old):
    id = await a_stranger(old, "greet")
    await old.give_back(id)
    await old.after(HOUR + 60, a_beat("twin", old.marks))
    assert not old.refusals.leave.jobs


async def test_the_time_goes_on_when_the_worker_is_started_again(old: Old, clock: ManualClock):
    id = await a_stranger(old)
    await old.give_back(id)
    await old.after(HOUR - 60)
    again = Old(Hawser("memory://"), old.store, clock, "again")
    await again.give_back(id)
    await again.after(61)
    dead = await again.decline(id)
    assert isinstance(dead, Dead)


async def test_two_old_workers_that_decline_it_do_not_wait_for_each_other(old: Old, clock: ManualClock):
    app = Hawser("memory://")

    @app.task
    async def greet(title: int) -> None: ...

    other = Old(app, old.store, clock, "other")
    id = await a_stranger(old, "greet")
    await old.give_back(id)
    await other.give_back(id)
    for _ in range(int(HOUR / REFUSALS_LOOK_EVERY_S) + 2):
        await old.after(REFUSALS_LOOK_EVERY_S, a_beat("other", other.marks))
        await other.refusals.refresh()
    assert not old.refusals.leave.jobs
    assert isinstance(await old.decline(id), Dead)


async def test_a_job_that_was_run_meanwhile_has_its_whole_time_again(old: Old, clock: ManualClock):
    id = await a_stranger(old)
    await old.give_back(id)
    await old.after(REFUSALS_LOOK_EVERY_S)
    clock.advance(HOUR)  # the old worker is gone
    [run] = await old.store.claim([Share("default")], 1, "new", 60)
    await old.store.settle([Settlement(run.id, run.lease, Snoozed(0.0, "later"))])
    again = Old(Hawser("memory://"), old.store, clock, "again")
    await again.give_back(id)
    await again.after(HOUR - 60)
    assert again.refusals.leave.jobs == {id}


async def test_a_job_that_has_ended_is_not_left_any_more(old: Old):
    id = await a_stranger(old)
    await old.give_back(id)
    await old.store.cancel([id], Actor("test"))
    await old.after(REFUSALS_LOOK_EVERY_S)
    assert old.refusals.leave.jobs == frozenset()


async def test_beyond_so_many_declined_jobs_the_task_rests(old: Old, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_DECLINED_JOBS", 2)
    ids = [await a_stranger(old, "greet") for _ in range(3)]
    for job in await old.store.claim([Share("default")], 10, "old", 60):
        old.refusals.decline(job, "no")
    assert old.refusals.leave.jobs == set(ids[:2])
    assert old.refusals.leave.tasks == {"greet"}
    await old.after(REST + 1)
    assert old.refusals.leave.tasks == frozenset()


def test_a_mark_is_that_of_what_fits():
    def release(annotation: Any) -> str:
        app = Hawser("memory://")

        @app.task
        async def greet(name: annotation) -> None: ...

        return marks(app.tasks)["greet"]

    assert release(str) == release(str)
    assert release(str) != release(int)


async def test_a_worker_that_can_run_none_of_what_is_due_does_not_spin(app: Hawser):
    @app.task
    async def greet(name: str) -> None: ...

    store = await app.store()
    claims = 0
    claim = store.claim

    async def counted(*args: Any) -> Any:
        nonlocal claims
        claims += 1
        return await claim(*args)

    store.claim = counted  # type: ignore[method-assign,assignment]
    strangers: list[NewJob] = [new_job(task="new", body=b"{}"), new_job(task="greet", body=b'{"name": "a", "title": "Dr"}')]
    async with working(app):
        await store.enqueue(strangers)
        for job in strangers:
            left = await until(lambda job: bool(job.returned), app, job.id)
            assert (left.state, left.attempt, left.errors) == (State.READY, 0, ())
        assert left.reason is not None
        assert left.reason.endswith("cannot run it: payload.title: task 'greet' has no such argument; it takes name")
        before = claims
        await asyncio.sleep(1)  # what is measured: how often it asks while there is nothing for it
        assert claims - before <= 3
        handle = await greet.aenqueue("b")
        assert (await until(lambda job: job.state.finished, app, handle.id, 2)).state is State.DONE
    assert [(await app.aget(job.id)).lease for job in strangers] == [1, 1]


async def test_what_is_no_json_is_nobodys_and_fails(app: Hawser):
    @app.task
    async def greet(name: str) -> None: ...

    job = NewJob(task="greet", body=b"{", max_attempts=1)
    await (await app.store()).enqueue([job])
    async with working(app):
        assert (await until(lambda job: job.state.finished, app, job.id)).state is State.DEAD
