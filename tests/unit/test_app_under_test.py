"""`hawser_app`, the fixture for users' tests. It comes from the installed plugin, as for them."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
import threading
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from hawser import Cancel, ConfigError, Context, Drop, Every, Fixed, Hawser, Retry, Snooze, UnknownTask
from hawser.testing import AppUnderTest

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def mail(hawser_app: AppUnderTest):
    @hawser_app.task(queue="mail")
    def send_email(to: str, template: str = "welcome") -> str:
        return f"{template} to {to}"

    return send_email


# What was enqueued.


def test_what_was_enqueued_can_be_asserted(hawser_app, mail):
    handle = mail.enqueue("ann@example.com")
    job = hawser_app.assert_enqueued("send_email", payload={"to": "ann@example.com"}, queue="mail")
    assert job.id == handle.id
    assert hawser_app.assert_enqueued(mail, {"to": "ann@example.com"}, count=1).id == handle.id
    assert [job.id for job in hawser_app.enqueued("send_email")] == [handle.id]
    assert hawser_app.enqueued(queue="other") == []


def test_what_was_enqueued_is_told_oldest_first_whatever_became_of_it(hawser_app, mail):
    ids = [mail.enqueue(str(n)).id for n in range(3)]
    hawser_app.drain()
    mail.enqueue("3")
    assert [job.payload["to"] for job in hawser_app.enqueued(mail)] == ["0", "1", "2", "3"]
    assert [job.id for job in hawser_app.enqueued(mail, state="done")] == ids
    hawser_app.assert_enqueued(mail, {"to": "0"})


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"payload": {"to": "bob"}}, "payload={'to': 'bob'}"),
        ({"queue": "bulk"}, "queue='bulk'"),
        ({"priority": 9}, "priority=9"),
        ({"key": None, "priority": 4}, "key=None"),
        ({"count": 2}, "2 times"),
    ],
)
def test_a_failed_assertion_says_what_is_there(hawser_app, mail, wanted, told):
    mail.enqueue("ann")
    with pytest.raises(AssertionError) as caught:
        hawser_app.assert_enqueued("send_email", **wanted)
    assert told in str(caught.value)
    assert "send_email {'to': 'ann'" in str(caught.value)


def test_an_assertion_about_a_name_that_does_not_exist_is_an_error(hawser_app, mail):
    with pytest.raises(UnknownTask, match="send_email"):
        hawser_app.assert_enqueued("send_emial")
    with pytest.raises(UnknownTask):
        hawser_app.assert_not_enqueued("send_emial")
    with pytest.raises(TypeError, match="prio"):
        hawser_app.assert_enqueued("send_email", prio=3)


def test_what_was_not_enqueued_can_be_asserted(hawser_app, mail):
    hawser_app.assert_not_enqueued("send_email")
    mail.enqueue("ann")
    hawser_app.assert_not_enqueued("send_email", {"to": "bob"})
    with pytest.raises(AssertionError, match="ann"):
        hawser_app.assert_not_enqueued("send_email")


def test_values_are_compared_as_they_are_stored(hawser_app):
    @hawser_app.task
    def close_day(day: date, steps: tuple[int, ...]) -> None: ...

    close_day.enqueue(date(2026, 3, 1), (1, 2))
    hawser_app.assert_enqueued("close_day", {"day": date(2026, 3, 1), "steps": (1, 2)})


# Drain.


def test_drain_runs_what_is_due_and_what_follows_from_it(hawser_app, mail):
    @hawser_app.task
    def sign_up(ctx: Context, name: str) -> None:
        ctx.enqueue(mail.job(name))
        ctx.progress({"half": True})

    @hawser_app.task
    async def import_all() -> None:
        for name in ("ann", "bob"):
            await sign_up.aenqueue(name)

    import_all.enqueue()
    drained = hawser_app.drain()
    assert (drained.runs, drained.done, drained.dead) == (5, 5, 0)
    assert [job.result for job in hawser_app.enqueued("send_email")] == ["welcome to ann", "welcome to bob"]
    assert hawser_app.enqueued("sign_up")[0].progress == {"half": True}
    assert hawser_app.drain().runs == 0


def test_drain_goes_through_retries_in_virtual_time(hawser_app):
    seen = []

    @hawser_app.task(max_attempts=4, backoff=Fixed(every=600, jitter="none"))
    def flaky(ctx: Context) -> str:
        seen.append((ctx.attempt, hawser_app.now - start))
        if ctx.attempt < 3:
            raise OSError("no route")
        return "through"

    start = hawser_app.now
    handle = flaky.enqueue()
    assert hawser_app.drain().done == 1
    assert seen == [(n, timedelta(seconds=600 * (n - 1))) for n in (1, 2, 3)]
    job = hawser_app.get(handle.id)
    assert (job.state, job.result, len(job.errors)) == ("done", "through", 2)


def test_a_job_is_dead_after_its_last_attempt(hawser_app):
    @hawser_app.task(max_attempts=3)
    def broken() -> None:
        raise ValueError("no")

    broken.enqueue()
    drained = hawser_app.drain()
    assert (drained.runs, drained.dead) == (3, 1)
    [job] = drained.in_state("dead")
    assert job.errors[-1].error == "ValueError: no"


def test_drain_can_raise_the_first_error(hawser_app):
    @hawser_app.task
    def broken() -> None:
        raise ValueError("no")

    broken.enqueue()
    with pytest.raises(ValueError, match="no"):
        hawser_app.drain(raise_errors=True)


@pytest.mark.parametrize(
    ("raised", "state", "runs"),
    [(Drop("bad"), "dead", 1), (Cancel("gone"), "cancelled", 1), (Retry(after=7), "done", 2), (Snooze(3600), "done", 2)],
)
def test_a_handlers_decision_holds(hawser_app, raised, state, runs):
    left = [raised]

    @hawser_app.task
    def choosy() -> None:
        if left:
            raise left.pop()

    choosy.enqueue()
    drained = hawser_app.drain()
    assert (drained.runs, drained.jobs[0].state) == (runs, state)


def test_a_drain_that_would_never_end_fails(hawser_app):
    @hawser_app.task
    def again(ctx: Context) -> None:
        ctx.enqueue(again.job())

    again.enqueue()
    with pytest.raises(AssertionError, match="25 runs"):
        hawser_app.drain(limit=25)


def test_a_paused_queue_is_left_alone(hawser_app, mail):
    mail.enqueue("ann")
    hawser_app.pause(queue="mail")
    assert hawser_app.drain().runs == 0
    hawser_app.resume(queue="mail")
    assert hawser_app.drain().runs == 1


def test_a_plain_handler_runs_in_the_tests_own_thread(hawser_app):
    con = sqlite3.connect(":memory:")  # refuses other threads
    con.execute("create table orders (id)")

    @hawser_app.task
    def order(id: int) -> None:
        con.execute("insert into orders values (?)", (id,))

    order.enqueue(17)
    hawser_app.drain(raise_errors=True)
    assert con.execute("select id from orders").fetchall() == [(17,)]
    con.close()


def test_pytest_fail_in_a_handler_fails_the_test(hawser_app):
    @hawser_app.task
    def careful() -> None:
        pytest.fail("not to be called")

    careful.enqueue()
    with pytest.raises(pytest.fail.Exception):
        hawser_app.drain()


# Time.


def test_delayed_jobs_wait_for_advance(hawser_app, mail):
    @hawser_app.task(max_attempts=2, backoff=Fixed(every=7200, jitter="none"))
    def broken() -> None:
        raise ValueError

    mail.using(delay=3600).enqueue("ann")
    mail.using(run_at=hawser_app.now + timedelta(hours=5)).enqueue("bob")
    broken.enqueue()
    assert hawser_app.drain().runs == 2, "the retry moved the clock by two hours, and the delayed job still waits"
    hawser_app.advance(3600)
    assert [job.payload["to"] for job in hawser_app.drain().jobs] == ["ann"]
    hawser_app.advance(timedelta(hours=2))
    assert [job.payload["to"] for job in hawser_app.drain().jobs] == ["bob"]


def test_schedules_fire_tick_by_tick(hawser_app):
    @hawser_app.task(schedule=Every(minutes=10))
    def report() -> None: ...

    hawser_app.drain()
    assert hawser_app.enqueued("report") == []
    hawser_app.advance(3600)
    jobs = hawser_app.enqueued("report")
    assert len(jobs) == 6
    assert {b.run_at - a.run_at for a, b in pairwise(jobs)} == {timedelta(minutes=10)}
    assert hawser_app.drain().done == 6


def test_the_clock_only_moves_forward(hawser_app):
    with pytest.raises(ValueError, match="negative"):
        hawser_app.advance(-1)
    with pytest.raises(ValueError, match="aware"):
        hawser_app.advance_to(hawser_app.now - timedelta(seconds=1))
    hawser_app.advance_to(hawser_app.now + timedelta(days=1))


# Inline.


def test_inline_an_enqueue_runs_the_task_at_once(hawser_app, mail):
    waiting = mail.enqueue("early")
    with hawser_app.inline():
        handle = mail.using(delay=3600).enqueue("ann")
        assert hawser_app.get(handle.id).result == "welcome to ann"
        assert hawser_app.enqueue("send_email", {"to": "bob"}).created
    assert hawser_app.get(waiting.id).state == "ready"
    assert hawser_app.get(mail.enqueue("late").id).state == "ready"


def test_inline_errors_surface(hawser_app):
    @hawser_app.task
    async def broken() -> None:
        raise ValueError("no")

    with hawser_app.inline(), pytest.raises(ValueError, match="no"):
        broken.enqueue()


def test_inline_chains_run_and_a_key_makes_no_second_run(hawser_app):
    calls = []

    @hawser_app.task
    async def child(n: int) -> None:
        calls.append(n)

    @hawser_app.task
    def parent(ctx: Context) -> None:
        ctx.enqueue(child.job(1))
        child.using(key="once", key_ttl=60).enqueue(2)

    with hawser_app.inline():
        parent.enqueue()
        parent.enqueue()
    assert calls == [2, 1, 1]


async def test_inline_in_an_async_test(hawser_app):
    loops = []

    @hawser_app.task
    async def where() -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    @hawser_app.task
    async def outer() -> None:
        where.enqueue()
        await where.aenqueue()

    with hawser_app.inline():
        await where.aenqueue()
        where.enqueue()
        await outer.aenqueue()
    here = asyncio.get_running_loop()
    assert [loop is here for loop in loops] == [True, False, False, True]


# Async tests.


async def test_async_handlers_run_on_the_loop_of_an_async_test(hawser_app):
    loops, threads = [], []

    @hawser_app.task
    async def on_loop() -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    @hawser_app.task
    def in_thread() -> None:
        threads.append(threading.current_thread())
        on_loop.enqueue()

    await in_thread.aenqueue()
    assert (await hawser_app.adrain()).done == 2
    assert loops == [asyncio.get_running_loop()]
    assert threads != [threading.current_thread()]


async def test_drain_works_in_an_async_test_too(hawser_app):
    @hawser_app.task
    async def pause() -> str:
        await asyncio.sleep(0)
        return "done"

    pause.enqueue()
    assert hawser_app.drain().jobs[0].result == "done"


# Apps of the user's own.


def test_an_app_is_adopted_until_the_end_of_the_test(tmp_path: Path):
    shop = Hawser(f"sqlite:///{tmp_path}/shop.db")

    @shop.task
    async def ship(order: int) -> int:
        return order

    ship.enqueue(1)
    with AppUnderTest() as app:
        app.adopt(shop)
        ship.enqueue(2)
        shop.enqueue("ship", {"order": 3})
        assert [job.payload["order"] for job in app.enqueued("ship")] == [2, 3]
        assert [job.payload["order"] for job in shop.find().jobs] == [3, 2]
        assert app.drain().done == 2
        shop.close()
        ship.enqueue(4)
        assert len(app.enqueued()) == 3
        assert len(app.enqueued(state="ready")) == 1
    assert [job.payload["order"] for job in shop.find().jobs] == [1]
    shop.close()


def test_a_task_that_two_apps_have_is_refused(hawser_app, mail):
    other = Hawser("memory://")

    @other.task
    def send_email() -> None: ...

    with pytest.raises(ConfigError, match="send_email"):
        hawser_app.adopt(other)
    assert send_email.enqueue().created
    assert hawser_app.enqueued() == []


def test_enqueues_inside_a_transaction_are_there(hawser_app, mail, tmp_path: Path):
    con = sqlite3.connect(tmp_path / "shop.db")
    mail.inside(con).enqueue("ann")
    hawser_app.inside(con).enqueue("send_email", {"to": "bob"})
    hawser_app.inside(con).enqueue_many([mail.job("cid")])
    with hawser_app.inline():
        mail.inside(con).enqueue("dan")
    con.close()
    assert [job.state for job in hawser_app.enqueued("send_email")] == ["ready"] * 3 + ["done"]


async def test_async_enqueues_inside_a_transaction_are_there(hawser_app, mail):
    await mail.inside(object()).aenqueue("ann")
    hawser_app.assert_enqueued("send_email", {"to": "ann"})


def test_the_plugin_needs_no_configuration(tmp_path: Path):
    """In an empty folder, with no other plugin."""
    (tmp_path / "test_shop.py").write_text(
        textwrap.dedent("""
        def test_mail(hawser_app):
            @hawser_app.task
            def send_email(to: str) -> None: ...

            send_email.enqueue("a@example.com")
            hawser_app.assert_enqueued("send_email", payload={"to": "a@example.com"})
            assert hawser_app.drain().done == 1

        def test_another(hawser_app):
            assert hawser_app.enqueued() == []
        """)
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", "-W", "error", "."]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout[-2000:]
