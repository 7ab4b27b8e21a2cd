"""Waits in handlers: for events, and for jobs of their own."""

import asyncio
import gc
import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from hawser import BadStep, Context, EventTimeout, Fixed, Hawser, InvalidJob, Limit, OutcomeUnknown, Retention, State
from hawser.outcome import Held
from hawser.store import Settled, Settlement, Share
from hawser.stores.memory import MemoryStore
from hawser.testing.fault import Fault
from hawser.testing.faults import FaultyStore
from tests.worker.conftest import ended, until, working
from tests.worker.processes import eventually, fleet
from tests.worker.tasks import isolated_waits

SOON = Fixed(every=0.01, jitter="none")


class Packed(msgspec.Struct):
    parcels: int


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_handler_waits_for_an_event_without_a_slot(app: Hawser, kind: str):
    calls: list[Any] = []

    async def order_async(ctx: Context) -> int:
        calls.append("run")
        try:
            packed = await ctx.wait_for("packed:42", timeout=60, into=Packed)
        except Exception:
            calls.append("eaten")
            raise
        return packed.parcels

    def order(ctx: Context) -> int:
        calls.append("run")
        try:
            packed: Any = ctx.wait_for("packed:42", timeout=timedelta(minutes=1), into=Packed)
        except Exception:
            calls.append("eaten")
            raise
        return int(packed.parcels)

    task = app.task(name="order", max_attempts=1)(order_async if kind == "async" else order)
    async with working(app, slots=1):
        id = (await task.aenqueue()).id
        job = await until(lambda job: job.held, app, id)
        assert (job.state, job.attempt, job.lease_until) == (State.READY, 0, None)
        assert job.reason == "waits for the event 'packed:42'"
        [step] = await app.asteps(id)
        assert (step.kind, step.event) == ("wait", "packed:42")
        assert step.until is not None
        assert step.until - step.at == timedelta(minutes=1)
        emitted = await app.aemit("packed:42", Packed(3))
        assert emitted.created
        job = await ended(app, id)
    assert (job.state, job.result, job.attempt, calls) == (State.DONE, 3, 1, ["run", "run"])


async def test_a_time_out_is_raised_in_every_run(app: Hawser):
    seen: list[str] = []

    @app.task(backoff=SOON, max_attempts=3)
    async def order(ctx: Context) -> str:
        try:
            await ctx.wait_for("packed", timeout=0.05)
        except EventTimeout as error:
            seen.append(str(error))
        if len(seen) < 2:
            await app.aemit("packed", 1)
            raise OSError("gone")
        return "refunded"

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.state, job.result) == (State.DONE, "refunded")
    assert len(seen) == 2
    assert re.match(r"wait_for 'packed': the event did not come before \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", seen[0])
    assert seen[0] == seen[1]


async def test_an_event_that_came_before_is_not_waited_for(app: Hawser):
    runs: list[int] = []

    @app.task
    async def order(ctx: Context) -> Any:
        runs.append(1)
        return await ctx.wait_for("packed", timeout=None)

    await app.aemit("packed", {"parcels": 2})
    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.result, runs) == ({"parcels": 2}, [1])


async def test_what_an_event_says_must_fit_the_wanted_type(app: Hawser):
    @app.task(max_attempts=1)
    async def order(ctx: Context) -> None:
        await ctx.wait_for("packed", timeout=None, into=Packed)

    await app.aemit("packed", {"parcels": "many"})
    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert job.state is State.DEAD
    assert "step 'packed': what is kept of it does not fit" in str(job.errors[0])


async def test_the_second_emit_is_told(app: Hawser):
    first = await app.aemit("paid", {"cents": 5})
    again, other = await app.aemit("paid", {"cents": 5}), await app.aemit("paid", {"cents": 6})
    assert (first.created, again.created, other.created) == (True, False, False)
    assert (again.same, other.same, other.at) == (True, False, first.at)
    event = await app.aevent("paid")
    assert event is not None
    assert event.value == {"cents": 5}


def test_sync_callers_emit_too(app: Hawser):
    assert app.emit("paid").created
    event = app.event("paid")
    assert event is not None
    assert event.value is None
    assert app.event("other") is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("",), "name: a text of 0 characters; use 1 to 256"),
        (("n" * 257,), "name: a text of 257 characters; use 1 to 256"),
        ((7,), "name: 7 is not a text"),
        (("a", object()), "body: "),
        (("a", "x" * 300_000), "body: "),
        (("a", float("nan")), "body"),
    ],
)
def test_an_event_that_is_wrong_is_named(app: Hawser, arguments: tuple[Any, ...], text: str):
    with pytest.raises(InvalidJob, match=text):
        app.emit(*arguments)


@pytest.mark.parametrize("keep", [0, -1, True, "long", 1e12])
def test_how_long_an_event_is_kept_is_checked(app: Hawser, keep: Any):
    with pytest.raises(InvalidJob, match=r"keep: .* is not a time above 0 s and up to 10 years"):
        app.emit("a", 1, keep=keep)
    assert app.event("a") is None


async def test_a_lost_answer_of_emit_is_asked_for_again():
    faulty = FaultyStore(MemoryStore())
    app = Hawser(faulty, enqueue_retry_after=0.001)
    faulty.next("emit", Fault.LOSE_REPLY)
    emitted = await app.aemit("paid", 1)
    assert (emitted.created, emitted.same) == (False, True)
    for _ in range(app.config.enqueue_tries):
        faulty.next("emit", Fault.LOSE_REPLY)
    with pytest.raises(OutcomeUnknown):
        await app.aemit("other", 1)


async def test_a_lost_answer_at_a_wait_loses_nothing():
    faulty = FaultyStore(MemoryStore())
    app = Hawser(faulty)

    @app.task
    async def order(ctx: Context) -> Any:
        return await ctx.wait_for("packed", timeout=None)

    await app.aemit("packed", 7)
    faulty.next("arrive", Fault.LOSE_REPLY)
    faulty.next("arrive", Fault.REFUSE)
    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.state, job.result) == (State.DONE, 7)


async def _no_timeout(ctx: Context) -> None:
    await ctx.wait_for("a")  # type: ignore[call-overload]


async def _odd_timeout(ctx: Context) -> None:
    await ctx.wait_for("a", timeout="soon")  # type: ignore[call-overload]


async def _negative_timeout(ctx: Context) -> None:
    await ctx.wait_for("a", timeout=-1)


async def _empty_event(ctx: Context) -> None:
    await ctx.wait_for("", timeout=None)


async def _same_event_twice(ctx: Context) -> None:
    await ctx.step("a", lambda: asyncio.sleep(0, 1))
    await ctx.wait_for("a", timeout=None)


async def _no_job(ctx: Context) -> None:
    await ctx.gather("a")  # type: ignore[call-overload]


async def _unnamed_twice(ctx: Context) -> None:
    await ctx.gather()
    await ctx.gather()


BAD = {
    _no_timeout: r"wait_for 'a': timeout: it is not given; write timeout=SECONDS; None waits without an end",
    _odd_timeout: r"wait_for 'a': timeout: 'soon' is not a time from 0 s to 10 years; None waits without an end",
    _negative_timeout: r"wait_for 'a': timeout: -1 is not a time",
    _empty_event: r"wait_for '': the name is a text of 0 characters; use 1 to 256",
    _same_event_twice: r"wait_for 'a': the name was used before in this run",
    _no_job: r"gather 'gather': jobs\[0\]: str is not a new job; make one with task.job",
    _unnamed_twice: r"gather 'gather': the name was used before in this run",
}


@pytest.mark.parametrize("handler", BAD, ids=lambda handler: handler.__name__)
async def test_a_wait_that_is_wrong_is_named(app: Hawser, handler):
    @app.task(name="bad", max_attempts=3, backoff=SOON)
    async def bad(ctx: Context) -> None:
        await handler(ctx)

    async with working(app):
        job = await ended(app, (await bad.aenqueue()).id)
    assert (job.state, len(job.errors)) == (State.DEAD, 1), "it would be wrong again"
    assert re.search(BAD[handler], str(job.errors[0]))


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_handler_gathers_jobs_of_its_own(app: Hawser, kind: str):
    runs: list[str] = []

    @app.task
    async def label(parcel: int) -> Packed:
        runs.append(f"label {parcel}")
        return Packed(parcel)

    async def order_async(ctx: Context) -> int:
        runs.append("order")
        labels = await ctx.gather(*(label.job(n) for n in range(5)))
        more = await ctx.gather(label.job(7), name="more")
        assert [type(each) for each in (*labels, *more)] == [Packed] * 6
        return sum(each.parcels * 10**n for n, each in enumerate([*labels, *more]))

    def order(ctx: Context) -> int:
        runs.append("order")
        labels: Any = ctx.gather(*(label.job(n) for n in range(5)))
        more: Any = ctx.gather(label.job(7), name="more")
        return sum(each.parcels * 10**n for n, each in enumerate([*labels, *more]))

    task = app.task(name="order", max_attempts=1)(order_async if kind == "async" else order)
    async with working(app, slots=1):  # a parent that waited in the only slot would wait for ever
        job = await ended(app, (await task.aenqueue()).id)
    assert (job.state, job.result, job.attempt) == (State.DONE, 743210, 1)
    assert runs.count("order") == 3
    assert len(runs) == 3 + 6
    children = await app.afind(parent_id=job.id)
    assert len(children.jobs) == 6


async def test_gather_of_nothing_is_nothing(app: Hawser):
    @app.task
    async def order(ctx: Context) -> list[Any]:
        return await ctx.gather()

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.result, job.returned) == ([], 0)


async def test_a_dead_child_keeps_its_parent_until_it_is_replayed(app: Hawser):
    broken = [True]

    @app.task(max_attempts=1)
    async def part() -> int:
        if broken:
            raise OSError("gone")
        return 1

    @app.task
    async def order(ctx: Context) -> list[int]:
        return await ctx.gather(part.job())

    async with working(app):
        id = (await order.aenqueue()).id
        await until(lambda job: job.held, app, id)
        [child] = (await app.afind(parent_id=id)).jobs
        await ended(app, child.id)
        assert (await app.aget(id)).held
        broken.clear()
        await app.arequeue(child.id)
        job = await ended(app, id)
    assert (job.state, job.result) == (State.DONE, [1])


async def test_a_cancelled_child_cancels_its_parent(app: Hawser):
    @app.task(queue="idle")
    async def part() -> int:
        return 1

    @app.task
    async def order(ctx: Context) -> list[int]:
        return await ctx.gather(part.job())

    async with working(app):
        id = (await order.aenqueue()).id
        await until(lambda job: job.held, app, id)
        [child] = (await app.afind(parent_id=id)).jobs
        await app.acancel(child.id)
        job = await ended(app, id)
    assert (job.state, job.reason) == (State.CANCELLED, f"it waited for job {child.id}, which is cancelled")


async def test_children_whose_results_are_not_kept_cannot_be_gathered(app: Hawser):
    @app.task(retention=Retention(done=0))
    async def part() -> int:
        return 1

    @app.task
    async def order(ctx: Context) -> list[int]:
        return await ctx.gather(part.job())

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert job.state is State.DEAD
    assert "gather 'gather': result: done jobs of task 'part' are not kept" in str(job.errors[0])
    assert (await app.afind(task="part")).jobs == []


async def test_a_job_that_would_wait_for_its_parent_cannot_be_gathered(app: Hawser):
    """The parent keeps its group until it ends, and waits for the child."""

    @app.task(group="of", limit=Limit(running=1, per_group=True, ordered=True), max_attempts=1)
    async def part(ctx: Context, of: str, more: bool) -> list[Any]:
        return await ctx.gather(part.job("b", more=False), part.job(of, more=False)) if more else []

    async with working(app):
        job = await ended(app, (await part.aenqueue("a", more=True)).id)
    assert job.state is State.DEAD
    assert "gather 'gather': jobs[1].group: the jobs of this group start in their order" in str(job.errors[0])
    assert [each.id for each in (await app.afind()).jobs] == [job.id]


async def test_a_job_with_a_key_cannot_be_gathered(app: Hawser):
    @app.task
    async def part() -> int:
        return 1

    @app.task
    async def order(ctx: Context) -> list[int]:
        return await ctx.gather(part.using(key="k").job())

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert "gather 'gather': jobs[0].key: a job that is gathered is known by its place and has no key" in str(job.errors[0])


async def test_results_that_are_too_large_together_fail_the_job_for_good(app: Hawser):
    @app.task
    async def part() -> str:
        return "x" * 100_000

    @app.task
    async def order(ctx: Context) -> int:
        return len(await ctx.gather(*(part.job() for _ in range(3))))

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.state, len(job.errors)) == (State.DEAD, 1)
    assert "gather 'gather': results: they come to 300,010 bytes of JSON" in str(job.errors[0])


async def test_a_child_that_was_removed_is_named_and_not_run_again(app: Hawser):
    runs: list[int] = []
    store = await app.store()
    assert isinstance(store, MemoryStore)

    @app.task
    async def part() -> int:
        runs.append(1)
        return 1

    @app.task
    async def order(ctx: Context) -> list[int]:
        if runs:
            [child] = (await app.afind(parent_id=ctx.job.id)).jobs
            store._remove(store._rows[child.id], 0)
        return await ctx.gather(part.job())

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.state, runs) == (State.DEAD, [1])
    assert re.search(r"gather 'gather': job .* of task 'part' was removed before its result was read", str(job.errors[0]))


async def test_a_suspension_that_is_caught_is_named(app: Hawser):
    @app.task(max_attempts=1)
    async def order(ctx: Context) -> str:
        try:
            await ctx.wait_for("packed", timeout=None)
        except BaseException:
            return "fine"
        return "came"

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert job.state is State.DEAD
    assert "the handler caught what suspends its run (waits for the event 'packed')" in str(job.errors[0])


async def test_code_that_waits_elsewhere_now_is_named(app: Hawser, patience: float):
    @app.task(name="order", max_attempts=1)
    async def order(ctx: Context) -> None:
        await ctx.step("packed", lambda: asyncio.sleep(0, 1))
        raise OSError("gone")

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    app2 = Hawser(await app.store())

    @app2.task(name="order", max_attempts=1)
    async def changed(ctx: Context) -> None:
        await ctx.wait_for("packed", timeout=None)

    await app2.arequeue(job.id)
    async with working(app2):
        await until(lambda job: len(job.errors) == 2, app2, job.id, patience)
    job = await app2.aget(job.id)
    assert "wait_for 'packed': what is kept under this name is a step" in str(job.errors[1])


async def test_other_jobs_under_the_same_name_are_named(app: Hawser):
    @app.task
    async def part() -> int:
        return 1

    @app.task(name="order", max_attempts=1)
    async def order(ctx: Context) -> None:
        await ctx.gather(part.job())
        raise OSError("gone")

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    app2 = Hawser(await app.store())

    @app2.task(name="order", max_attempts=1)
    async def changed(ctx: Context) -> None:
        await ctx.gather(part.job(), part.job())

    await app2.arequeue(job.id)
    async with working(app2):
        await until(lambda job: len(job.errors) == 2, app2, job.id)
    job = await app2.aget(job.id)
    assert "gather 'gather': what is kept are the results of 1 jobs, and now there are 2" in str(job.errors[1])


def test_a_task_that_is_called_like_a_function_cannot_wait(app: Hawser):
    @app.task
    def order(ctx: Context) -> None:
        ctx.wait_for("packed", timeout=None)

    with pytest.raises(Exception, match="wait_for 'packed': a task that is called like a function has no job that could wait"):
        order()


async def test_a_job_without_handlers_in_memory_is_not_forgotten(app: Hawser, patience: float):
    """A wait stands in the store, and not in a task of the event loop that may be collected."""

    @app.task
    async def order(ctx: Context) -> Any:
        return await ctx.wait_for("packed", timeout=None)

    async with working(app):
        id = (await order.aenqueue()).id
        await until(lambda job: job.held, app, id, patience)
        gc.collect()
    await app.aemit("packed", 7)
    async with working(app):
        assert (await ended(app, id)).result == 7


async def test_a_drain_hands_back_before_a_wait(app: Hawser):
    began = asyncio.Event()
    stopping: list[asyncio.Event] = []

    @app.task
    async def order(ctx: Context) -> Any:
        if ctx.job.lease == 1:
            began.set()
            await stopping[0].wait()
        return await ctx.wait_for("packed", timeout=None)

    async with working(app) as stop:
        stopping.append(stop)
        id = (await order.aenqueue()).id
        await began.wait()
    job = await app.aget(id)
    assert (job.state, job.attempt) == (State.READY, 0)
    await app.aemit("packed", 7)
    async with working(app):
        assert (await ended(app, id)).result == 7


async def test_no_second_run_goes_on_beside_a_long_step(app: Hawser):
    """The lease of a run is extended while its step takes longer than the lease."""
    calls: list[int] = []

    @app.task(timeout=30, max_attempts=1)
    async def order(ctx: Context) -> int:
        await ctx.step("slow", lambda: asyncio.sleep(1.5))  # three leases
        calls.append(1)
        await ctx.wait_for("packed", timeout=None)
        return len(calls)

    await app.aemit("packed", 7)
    async with working(app, lease=0.5):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.result, job.lease, job.crashes) == (1, 1, 0)


def test_isolated_handlers_wait(tmp_path):
    with fleet(tmp_path) as workers:
        workers.start("--slots", "2")
        app = Hawser(workers.url)
        [handle] = app._connection.put([isolated_waits.job()])
        eventually(lambda: app.get(handle.id).held, 30)
        app.emit("isolated", {"n": 4})
        eventually(lambda: app.get(handle.id).state.finished, 30)
        job = app.get(handle.id)
        assert (job.state, job.result) == (State.DONE, [{"n": 4}, [0, 1]])
        app.close()


async def test_a_held_outcome_needs_no_handler(app: Hawser):
    """The outcome itself stands in the seam: whoever settles may hold a job."""
    store = await app.store()

    @app.task
    async def order(ctx: Context) -> Any:
        return await ctx.wait_for("packed", timeout=None)

    id = (await order.aenqueue()).id
    [run] = await store.claim([Share("default")], 1, "w", 60.0)
    await store.settle([Settlement(run.id, run.lease, Held("packed", event="packed"))])
    assert (await app.aget(id)).held
    await app.aemit("packed", 1)
    async with working(app):
        assert (await ended(app, id)).result == 1


async def test_a_bad_step_is_told_to_the_handler(app: Hawser):
    @app.task
    async def order(ctx: Context) -> str:
        with pytest.raises(BadStep):
            await ctx.wait_for("packed", timeout=True)
        return "fine"

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert job.state is State.DEAD


async def test_a_job_goes_on_though_every_worker_dies_that_goes_on_with_it(app: Hawser, patience: float):
    """What a job waited for is decided by a fenced run, so that a recovery which is cut short leaves it to the next one."""
    runs: list[int] = []

    @app.task(max_attempts=5)
    async def order(ctx: Context) -> Any:
        runs.append(ctx.lease)
        return await ctx.wait_for("packed", timeout=None)

    async with working(app):
        id = (await order.aenqueue()).id
        await until(lambda job: job.held, app, id)
    await app.aemit("packed", 7)
    store = await app.store()
    for _ in range(3):  # a worker takes it, and dies before its first statement
        [taken] = await store.claim([Share("default")], 1, "dead", 0)
        assert taken.id == id
        assert [lost.id for lost in await store.reclaim(10)] == [id]
    async with working(app):
        job = await ended(app, id, patience)
    assert (job.state, job.result, len(runs)) == (State.DONE, 7, 2)


async def test_a_stale_run_cannot_hold_its_job(app: Hawser):
    """A run that was taken for dead and comes to a wait must not take the job away from the run that has it now."""

    @app.task
    async def order(ctx: Context) -> None: ...

    id = (await order.aenqueue()).id
    store = await app.store()
    [old] = await store.claim([Share("default")], 1, "frozen", 0)
    assert await store.reclaim(10)
    [new] = await store.claim([Share("default")], 1, "w2", 60)
    [answer] = await store.settle([Settlement(id, old.lease, Held("packed", event="packed", timeout=None))])
    job = await app.aget(id)
    assert (answer.said, job.state, job.held, job.lease) == (Settled.LOST, State.RUNNING, False, new.lease)
    assert await app.asteps(id) == []


async def test_a_parent_and_its_children_share_one_slot(app: Hawser, patience: float):
    @app.task
    async def child(n: int) -> int:
        return n

    @app.task
    async def parent(ctx: Context) -> list[int]:
        return await ctx.gather(*(child.job(n) for n in range(3)))

    async with working(app, slots=1):
        handles = [await parent.aenqueue() for _ in range(3)]
        assert [(await ended(app, handle.id, patience)).result for handle in handles] == [[0, 1, 2]] * 3
