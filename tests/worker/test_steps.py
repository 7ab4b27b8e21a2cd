"""Steps in handlers: done once, kept, and what cannot be kept is named."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from hawser import BadStep, Context, Fixed, Hawser, LeaseLost, Retention, State
from hawser.outcome import Released
from hawser.store import MAX_STEP_VALUE, MAX_STEPS, NewStep, Settlement, Share
from hawser.stores.memory import MemoryStore
from hawser.testing.fault import Fault
from hawser.testing.faults import FaultyStore
from tests.worker.conftest import ended, until, working
from tests.worker.processes import eventually, fleet
from tests.worker.tasks import isolated_steps

SOON = Fixed(every=0.01, jitter="none")


async def noted(calls: list[Any], word: Any) -> Any:
    calls.append(word)
    return None


class Paid(msgspec.Struct):
    charge: str
    cents: int


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_step_is_made_once_though_the_job_runs_again(app: Hawser, kind: str):
    calls: list[str] = []

    async def order_async(ctx: Context) -> list[Any]:
        async def charge() -> dict[str, str]:
            calls.append(ctx.key("charge"))
            return {"charge": "c1"}

        paid = await ctx.step("charge", charge)
        mailed = await ctx.step("mail", partial(noted, calls, "mail"))
        if len(calls) < 3:
            calls.append("failed")
            raise OSError("gone")
        return [paid, mailed]

    def order(ctx: Context) -> list[Any]:
        def charge() -> dict[str, str]:
            calls.append(ctx.key("charge"))
            return {"charge": "c1"}

        paid = ctx.step("charge", charge)
        mailed = ctx.step("mail", lambda: calls.extend(["mail"]))
        if len(calls) < 3:
            calls.append("failed")
            raise OSError("gone")
        return [paid, mailed]

    task = app.task(name="order", backoff=SOON, max_attempts=3)(order_async if kind == "async" else order)
    async with working(app):
        job = await ended(app, (await task.aenqueue()).id)
    assert (job.state, job.result) == (State.DONE, [{"charge": "c1"}, None])
    assert calls == [f"{job.id}:charge", "mail", "failed"]
    steps = await (await app.store()).steps(job.id)
    assert [(step.name, step.value, step.lease) for step in steps] == [("charge", {"charge": "c1"}, 1), ("mail", None, 1)]


async def test_attempts_count_since_the_last_step(app: Hawser):
    parts: list[int] = []

    @app.task(backoff=SOON, max_attempts=2)
    async def stubborn(ctx: Context) -> int:
        for n in range(5):
            seen = await ctx.step(f"part {n}", partial(noted, parts, n))
            if ctx.job.lease == n + 1:
                raise OSError("a hiccup after each part")
        return len(parts) if seen is None else -1

    async with working(app):
        job = await ended(app, (await stubborn.aenqueue()).id)
    assert (job.state, job.result, len(job.errors)) == (State.DONE, 5, 5)


async def test_every_run_gets_the_type_that_is_wanted(app: Hawser):
    seen: list[Any] = []

    @app.task(backoff=SOON)
    async def typed(ctx: Context) -> int:
        seen.append(await ctx.step("charge", lambda: asyncio.sleep(0, Paid("c1", 5)), into=Paid))
        if len(seen) < 2:
            raise OSError("gone")
        return 1

    async with working(app):
        await ended(app, (await typed.aenqueue()).id)
    assert seen == [Paid("c1", 5), Paid("c1", 5)]


async def test_a_kept_value_that_no_longer_fits_names_the_step_and_both_sides(app: Hawser):
    old = app.task(name="order", max_attempts=1)(_order_of_yesterday)
    async with working(app):
        job = await ended(app, (await old.aenqueue()).id)
    assert job.state is State.DEAD
    app2 = Hawser(await app.store())

    @app2.task(name="order", max_attempts=1)
    async def order(ctx: Context) -> None:
        await ctx.step("charge", lambda: asyncio.sleep(0, Paid("c2", 1)), into=Paid)

    await app2.arequeue(job.id)
    async with working(app2):
        job = await ended(app2, job.id)
    error = str(job.errors[-1])
    assert error.startswith("StepMismatch: step 'charge': ")
    for part in ("missing required field `cents`", '{"charge":"c1"}', "Paid", "version="):
        assert part in error


async def _order_of_yesterday(ctx: Context) -> None:
    await ctx.step("charge", lambda: asyncio.sleep(0, {"charge": "c1"}))
    raise OSError("gone")


async def test_another_version_is_another_step(app: Hawser):
    calls = []

    @app.task
    async def order(ctx: Context) -> list[int]:
        async def made(n: int) -> int:
            calls.append(n)
            return n

        return [await ctx.step("a", lambda: made(1)), await ctx.step("a", lambda: made(2), version=2)]

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.result, calls) == ([1, 2], [1, 2])
    assert [step.name for step in await (await app.store()).steps(job.id)] == ["a", "a@2"]


async def _twice(ctx: Context) -> None:
    await ctx.step("a", lambda: asyncio.sleep(0, 1))
    await ctx.step("a", lambda: asyncio.sleep(0, 1))


async def _not_json(ctx: Context) -> None:
    await ctx.step("a", lambda: asyncio.sleep(0, object()))


async def _changed_by_json(ctx: Context) -> None:
    await ctx.step("a", lambda: asyncio.sleep(0, (1, 2)))


async def _too_large(ctx: Context) -> None:
    await ctx.step("a", lambda: asyncio.sleep(0, "x" * MAX_STEP_VALUE))


async def _empty_name(ctx: Context) -> None:
    await ctx.step("", lambda: asyncio.sleep(0, 1))


async def _long_name(ctx: Context) -> None:
    await ctx.step("n" * 300, lambda: asyncio.sleep(0, 1))


async def _odd_version(ctx: Context) -> None:
    await ctx.step("a", lambda: asyncio.sleep(0, 1), version=0)


BAD = {
    _twice: r"step 'a': the name was used before in this run; give each step its own name",
    _not_json: r"step 'a': what it came to cannot be recorded: value: .*into=TYPE",
    _changed_by_json: r"step 'a': what it came to cannot be recorded: value: .*into=TYPE",
    _too_large: r"step 'a': what it came to cannot be recorded: value: .*262,?144",
    _empty_name: r"step '': the name is a text of 0 characters; use 1 to 256",
    _long_name: r"step 'n+': the name is a text of 300 characters; use 1 to 256",
    _odd_version: r"step 'a': version: 0 is not a whole number from 1",
}


@pytest.mark.parametrize("eaten", [False, True])
@pytest.mark.parametrize("handler", BAD, ids=lambda handler: handler.__name__)
async def test_a_step_that_cannot_be_kept_fails_the_job_for_good(app: Hawser, handler, eaten: bool):
    @app.task(name="bad", max_attempts=5)
    async def bad(ctx: Context) -> str:
        try:
            await handler(ctx)
        except BadStep:
            if not eaten:
                raise
            with pytest.raises(BadStep):
                await ctx.step("another", lambda: asyncio.sleep(0, 1))
        return "fine"

    async with working(app):
        job = await ended(app, (await bad.aenqueue()).id)
    assert (job.state, job.attempt) == (State.DEAD, 1)
    assert re.search(BAD[handler], str(job.errors[0]))


async def test_a_large_step_is_not_tried_again(app: Hawser):
    calls: list[int] = []

    @app.task(max_attempts=3, backoff=SOON)
    async def order(ctx: Context) -> None:
        await ctx.step("export", lambda: noted_large(calls))

    async def noted_large(calls: list[int]) -> str:
        calls.append(1)
        return "x" * MAX_STEP_VALUE

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.state, calls) == (State.DEAD, [1])
    assert "step 'export'" in str(job.errors[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda ctx, made: ctx.step("one more", partial(noted, made, "one more")),
        lambda ctx, _: ctx.sleep("one more", days=2),
        lambda ctx, _: ctx.wait_for("one more", timeout=60),
    ],
)
@pytest.mark.parametrize("eaten", [False, True])
async def test_a_job_may_have_so_many_steps_and_no_more(app: Hawser, call: Callable[..., Any], eaten: bool):
    made: list[str] = []

    @app.task(max_attempts=5, backoff=SOON)
    async def order(ctx: Context) -> None:
        await ctx.step("last", partial(noted, made, "last"))
        with suppress(BadStep if eaten else ZeroDivisionError):
            await call(ctx, made)

    id, store = (await order.aenqueue()).id, await app.store()
    [run] = await store.claim([Share("default")], 1, "w1", 60)
    await store.record_steps([NewStep(id=id, lease=run.lease, name=f"s{n}", value=b"1") for n in range(MAX_STEPS - 1)])
    await store.settle([Settlement(id, run.lease, Released())])
    async with working(app):
        job = await ended(app, id)
    assert (job.state, made, len(await store.steps(id))) == (State.DEAD, ["last"], MAX_STEPS)
    assert "'one more': the job has 10,000 steps, and may have no more; let it end with ctx.enqueue" in str(job.errors[-1])


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("step", lambda ctx: ctx.step("a", lambda: 1)),
        ("sleep", lambda ctx: ctx.sleep("a", days=2)),
        ("wait_for", lambda ctx: ctx.wait_for("a", timeout=60)),
        ("gather", lambda ctx: ctx.gather(ctx.job.id, name="a")),
    ],
)
async def test_a_task_that_keeps_no_done_jobs_has_no_steps(app: Hawser, kind: str, call: Callable[[Any], Any]):
    """Its job would come to a sleep or a wait again and again. It is told so at its first run, and not tried again."""
    runs: list[int] = []

    @app.task(retention=Retention(done=0), max_attempts=3, backoff=SOON)
    def hasty(ctx: Context) -> None:
        runs.append(1)
        call(ctx)

    async with working(app):
        job = await ended(app, (await hasty.aenqueue()).id)
    assert (job.state, runs) == (State.DEAD, [1])
    assert f"{kind} 'a': steps are kept with their job, and task 'hasty' keeps no done jobs" in str(job.errors[0])


async def test_a_run_whose_lease_is_gone_makes_no_further_step(app: Hawser):
    calls: list[str] = []
    store = await app.store()
    assert isinstance(store, MemoryStore)

    @app.task(max_attempts=1)
    async def frozen(ctx: Context) -> None:
        calls.append("one")
        # Another process takes the job back and records in the run that follows.
        row = store._rows[ctx.job.id]
        row.lease += 1
        with pytest.raises(LeaseLost, match="step 'two': the lease of this run is gone"):
            await ctx.step("two", lambda: noted(calls, "two"))
        raise OSError("ends")

    async with working(app):
        id = (await frozen.aenqueue()).id
        await until(lambda _: "two" in calls, app, id)
    assert await store.steps(id) == []


async def test_a_lost_answer_does_not_lose_the_step_nor_make_it_twice():
    faulty = FaultyStore(MemoryStore())
    app = Hawser(faulty)
    calls: list[int] = []

    @app.task
    async def order(ctx: Context) -> int:
        await ctx.step("charge", lambda: noted(calls, 1))
        return len(calls)

    faulty.next("record_steps", Fault.LOSE_REPLY)
    faulty.next("record_steps", Fault.REFUSE)
    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.state, job.result, calls) == (State.DONE, 1, [1])


def test_a_task_that_is_called_like_a_function_makes_its_steps(app: Hawser):
    @app.task
    def order(ctx: Context) -> int:
        return ctx.step("a", lambda: 1) + ctx.step("b", lambda: 2)

    @app.task
    async def aorder(ctx: Context) -> int:
        return await ctx.step("a", lambda: asyncio.sleep(0, 1))

    assert order() == 3
    assert asyncio.run(aorder()) == 1


def test_steps_of_isolated_jobs_survive_the_death_of_their_process(tmp_path):
    with fleet(tmp_path) as workers:
        workers.start("--slots", "2")
        app = Hawser(workers.url)
        [handle] = app._connection.put([isolated_steps.job()])
        eventually(lambda: app.get(handle.id).state.finished, 30)
        job = app.get(handle.id)
        assert (job.state, job.result) == (State.DONE, ["made after 0 crashes", "made after 1 crashes"])
        assert [attempt.outcome for attempt in job.attempts] == ["lost", "done"]
        app.close()


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_sleeping_job_has_no_slot_and_no_lease_and_burns_no_attempt(app: Hawser, kind: str):
    calls: list[str] = []

    async def order_async(ctx: Context) -> str:
        await ctx.step("charge", lambda: noted(calls, "charge"))
        try:
            await ctx.sleep("cool-off", 0.3)
        except Exception:
            calls.append("eaten")
        calls.append("awake")
        return "fine"

    def order(ctx: Context) -> str:
        ctx.step("charge", lambda: calls.extend(["charge"]))
        try:
            ctx.sleep("cool-off", 0.3)
        except Exception:
            calls.append("eaten")
        calls.append("awake")
        return "fine"

    task = app.task(name="order", max_attempts=1)(order_async if kind == "async" else order)
    async with working(app):
        id = (await task.aenqueue()).id
        job = await until(lambda job: job.reason is not None, app, id)
        assert (job.state, job.attempt, job.lease_until) == (State.READY, 0, None)
        assert re.match(r"sleeps: cool-off, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", str(job.reason))
        assert (await app.astats()).running == 0
        job = await ended(app, id)
    assert (job.state, job.result, job.attempt, calls) == (State.DONE, "fine", 1, ["charge", "awake"])
    charged, slept = await app.asteps(id)
    assert slept.until is not None
    assert (charged.kind, slept.kind, slept.until - slept.at) == ("step", "sleep", timedelta(seconds=0.3))
    assert job.finished_at is not None
    assert slept.until <= job.finished_at


async def test_a_sleep_in_one_of_several_tasks_suspends_the_run(app: Hawser):
    @app.task(max_attempts=1)
    async def order(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleeping(ctx))
        return "fine"

    async def sleeping(ctx: Context) -> None:
        await ctx.sleep("a", 0.05)

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert (job.state, job.result, job.errors) == (State.DONE, "fine", ())


async def test_a_handler_that_catches_its_suspension_fails_with_that_reason(app: Hawser):
    @app.task(max_attempts=1)
    async def order(ctx: Context) -> str:
        with suppress(BaseException):
            await ctx.sleep("a", 60)
        with suppress(BaseException):
            await ctx.step("never made", lambda: asyncio.sleep(0, 1))
        return "fine"

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert job.state is State.DEAD
    assert "SuspensionCaught: the handler caught what suspends its run (sleeps: a" in str(job.errors[0])
    assert [step.name for step in await app.asteps(job.id)] == ["a"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seconds": "2"}, "sleep 'a': seconds: '2' is not a number"),
        ({"minutes": "2"}, "sleep 'a': minutes: '2' is not a number"),
        ({"hours": None}, "sleep 'a': hours: None is not a number"),
        ({"days": True}, "sleep 'a': days: True is not a number"),
        ({"days": -1}, "sleep 'a': -86400.0 is not a time from 0 s to 10 years"),
        ({"days": 4000}, "sleep 'a': 345600000.0 is not a time from 0 s to 10 years"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_sleep_that_is_no_time_names_the_field_and_is_not_tried_again(
    app: Hawser, given: dict[str, Any], said: str, is_async: bool
):
    async def cool(ctx: Context) -> None:
        await ctx.sleep("a", **given)

    def cool_plainly(ctx: Context) -> None:
        ctx.sleep("a", **given)

    task = app.task(name="cool", max_attempts=3)(cool if is_async else cool_plainly)
    async with working(app):
        job = await ended(app, (await task.aenqueue()).id)
    assert (job.state, len(job.errors)) == (State.DEAD, 1)
    assert said in str(job.errors[0])


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "2"])
async def test_a_sleep_that_is_no_time_is_named(app: Hawser, seconds: Any):
    @app.task
    async def order(ctx: Context) -> None:
        ledger = ctx._steps_made()
        await ledger.sleep("a", seconds)

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert job.state is State.DEAD
    assert f"sleep 'a': {seconds!r} is not a time from 0 s to 10 years" in str(job.errors[0])


async def test_a_step_under_the_name_of_an_old_sleep_is_named(app: Hawser):
    changed: list[int] = []

    @app.task(max_attempts=1)
    async def order(ctx: Context) -> None:
        if changed:
            await ctx.step("a", lambda: asyncio.sleep(0, 1))
        changed.append(1)
        await ctx.sleep("a", 0.01)

    async with working(app):
        job = await ended(app, (await order.aenqueue()).id)
    assert "StepMismatch: step 'a': what is kept under this name is a sleep" in str(job.errors[0])


async def test_a_drain_waits_for_a_step_and_not_for_the_job(app: Hawser):
    calls: list[str] = []
    first = asyncio.Event()

    @app.task(max_attempts=1)
    async def long(ctx: Context) -> list[str]:
        async def one() -> None:
            calls.append("one")
            first.set()
            await asyncio.sleep(0.2)  # the worker hears of the drain meanwhile, and tells nobody

        await ctx.step("one", one)
        await ctx.step("two", lambda: noted(calls, "two"))
        return calls

    async with working(app, drain_timeout=20) as stop:
        id = (await long.aenqueue()).id
        await first.wait()
        stop.set()
    job = await app.aget(id)
    assert (job.state, job.attempt, calls) == (State.READY, 0, ["one"])
    async with working(app):
        job = await ended(app, id)
    assert (job.state, job.result) == (State.DONE, ["one", "two"])


def test_days_pass_at_once_in_a_test(hawser_app):
    seen: list[str] = []

    @hawser_app.task
    def order(ctx: Context) -> str:
        ctx.step("charge", lambda: seen.extend(["charge"]))
        ctx.sleep("cool-off", days=2)
        return "fine"

    handle = order.enqueue()
    hawser_app.drain()
    job = hawser_app.get(handle.id)
    assert (job.result, seen) == ("fine", ["charge"])
    assert timedelta(days=2) <= job.finished_at - job.enqueued_at < timedelta(days=2, seconds=60)


async def test_an_agent_of_300_turns_pays_for_no_turn_twice(app: Hawser):
    paid: list[int] = []

    async def ask_model(messages: list[str]) -> str:
        paid.append(len(messages))
        return f"answer {len(messages)}"

    @app.task(timeout=120, max_attempts=3, backoff=SOON)
    async def agent(ctx: Context, question: str) -> str:
        messages = [question]
        for turn in range(300):
            messages.append(await ctx.step(f"turn {turn}", lambda: ask_model(messages)))
            if turn in (100, 249) and ctx.lease == (1 if turn == 100 else 2):
                raise OSError("the worker is gone")
        return messages[-1]

    async with working(app):
        job = await ended(app, (await agent.aenqueue("why?")).id, 60)
    assert (job.state, job.result, job.lease) == (State.DONE, "answer 300", 3)
    assert paid == list(range(1, 301))
