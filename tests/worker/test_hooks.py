"""Hooks: once per process, and around each attempt."""

import asyncio
import contextvars
import json
import logging
from pathlib import Path

import pytest

from hawser import ConfigError, Context, Fixed, Hawser
from hawser.telemetry.logs import CURRENT, JsonFormatter, PlainFormatter
from tests.worker import hooked
from tests.worker.conftest import ended
from tests.worker.processes import eventually, fleet


async def test_start_and_stop_hooks_run_once_and_handlers_see_what_they_return(app: Hawser):
    seen: list[tuple[str, object]] = []

    @app.on_start
    async def pool(given: Hawser) -> str:
        seen.append(("pool", given is app))
        return "the pool"

    @app.on_start
    def settings() -> int:
        return 42

    @app.on_stop
    def last(given: Hawser) -> None:
        seen.append(("last", given is app))

    @app.on_stop(pool)
    async def close(value: str) -> None:
        seen.append(("close", value))

    @app.task
    async def on_loop(ctx: Context) -> list[object]:
        return [ctx.state["pool"], ctx.state["settings"]]

    @app.task
    def in_thread(ctx: Context) -> str:
        return str(ctx.state["pool"])

    async with app.worker(), app.worker():
        assert (await ended(app, (await on_loop.aenqueue()).id)).result == ["the pool", 42]
        assert (await ended(app, (await in_thread.aenqueue()).id)).result == "the pool"
    assert seen == [("pool", True), ("close", "the pool"), ("last", True)]
    with pytest.raises(KeyError, match="no start hook has run"):
        in_thread()


async def test_a_start_hook_that_fails_keeps_the_worker_from_starting_and_closes_what_was_opened(app: Hawser):
    closed: list[str] = []

    @app.on_start
    async def first() -> str:
        return "first"

    @app.on_start
    async def second() -> None:
        raise ConnectionError("no database")

    app.on_stop(first)(closed.append)
    app.on_stop(second)(closed.append)
    entered = []
    with pytest.raises(ConnectionError) as caught:
        async with app.worker():
            entered.append("the body runs without a worker")
    assert entered == []
    assert caught.value.__notes__ == ["in the start hook second"]
    assert closed == ["first"]


async def test_a_worker_of_a_task_that_is_not_there_does_not_begin(app: Hawser):
    @app.task
    def ship() -> None: ...

    entered = []
    with pytest.raises(ConfigError, match="no task 'shop'"):
        async with app.worker(tasks=["shop"]):
            entered.append("the body runs without a worker")
    assert entered == []


async def test_a_worker_that_is_given_up_while_it_starts_closes_what_it_opened(app: Hawser):
    opened = asyncio.Event()
    closed: list[str] = []

    @app.on_start
    async def first() -> str:
        return "first"

    @app.on_start
    async def endless() -> None:
        opened.set()
        await asyncio.Event().wait()

    app.on_stop(first)(closed.append)

    async def serve() -> None:
        async with app.worker():
            pytest.fail("the body runs without a worker")

    serving = asyncio.create_task(serve())
    await opened.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert closed == ["first"]


async def test_a_second_worker_waits_for_the_start_hooks_that_the_first_one_runs(app: Hawser):
    begun, go_on, calls = asyncio.Event(), asyncio.Event(), []

    @app.on_start
    async def pool() -> str:
        calls.append("start")
        begun.set()
        await go_on.wait()
        return "the pool"

    app.on_stop(pool)(calls.append)

    @app.task
    async def use(ctx: Context) -> str:
        return str(ctx.state["pool"])

    handle = await use.aenqueue()
    first, second = app.worker(), app.worker()
    starting = asyncio.create_task(first.__aenter__())
    await begun.wait()
    also = asyncio.create_task(second.__aenter__())
    for _ in range(20):
        await asyncio.sleep(0)
    assert (await app.aget(handle.id)).state == "ready", "nothing runs before the hooks have ended"
    go_on.set()
    await asyncio.gather(starting, also)
    assert (await ended(app, handle.id)).result == "the pool"
    await asyncio.gather(first.__aexit__(None, None, None), second.__aexit__(None, None, None))
    assert calls == ["start", "the pool"]


async def test_a_start_that_another_worker_gave_up_is_made_again(app: Hawser):
    calls = []

    @app.on_start
    async def pool() -> str:
        calls.append("start")
        if len(calls) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "the pool"

    begun = asyncio.Event()
    first = asyncio.create_task(app.worker().__aenter__())
    await begun.wait()
    second = app.worker()
    also = asyncio.create_task(second.__aenter__())
    first.cancel()
    await also
    assert app.hooks.state == {"pool": "the pool"}
    await second.__aexit__(None, None, None)
    assert calls == ["start", "start"]


async def test_a_worker_that_starts_while_another_stops_finds_what_its_own_hooks_opened(app: Hawser):
    closing, go_on, made = asyncio.Event(), asyncio.Event(), []

    @app.on_start
    def pool() -> int:
        made.append("pool")
        return len(made)

    @app.on_stop(pool)
    async def close(value: int) -> None:
        closing.set()
        await go_on.wait()

    first, second = app.worker(), app.worker()
    await first.__aenter__()
    leaving = asyncio.create_task(first.__aexit__(None, None, None))
    await closing.wait()
    entering = asyncio.create_task(second.__aenter__())
    for _ in range(20):
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(leaving, entering)
    assert app.hooks.state == {"pool": 2}
    await second.__aexit__(None, None, None)


async def test_a_stop_hook_that_fails_is_logged_and_the_others_run(app: Hawser, caplog: pytest.LogCaptureFixture):
    closed = []

    @app.on_stop
    def early() -> None:
        closed.append("early")

    @app.on_stop
    async def broken() -> None:
        raise ValueError("no")

    async with app.worker():
        pass
    assert closed == ["early"]
    assert "the stop hook broken failed" in caplog.text


VARIABLE = contextvars.ContextVar("variable", default="outside")


async def test_hooks_go_around_each_attempt_in_order(app: Hawser):
    seen = []

    @app.around
    async def outer(ctx: Context, call):
        VARIABLE.set("inside")
        await asyncio.sleep(0)
        seen.append(f"outer {ctx.job.task} {ctx.attempt}")
        try:
            return await call()
        except ValueError:
            seen.append("outer saw the error")
            raise

    @app.around
    async def inner(ctx: Context, call):
        seen.append("inner")
        return [await call()]

    @app.task(max_attempts=2, backoff=Fixed(every=0))
    async def on_loop(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError
        return VARIABLE.get()

    @app.task
    def in_thread() -> str:
        asyncio.run(asyncio.sleep(0))  # a plain handler may have a loop of its own
        return VARIABLE.get()

    async with app.worker():
        assert (await ended(app, (await on_loop.aenqueue()).id)).result == ["inside"]
        assert (await ended(app, (await in_thread.aenqueue()).id)).result == ["inside"]
    assert seen == [
        *("outer on_loop 1", "inner", "outer saw the error"),
        *("outer on_loop 2", "inner"),
        *("outer in_thread 1", "inner"),
    ]


@pytest.mark.parametrize("bad", [lambda app: app.around(lambda ctx, call: call()), lambda app: app.on_start(3)])
def test_what_is_no_hook_is_refused(app: Hawser, bad):
    with pytest.raises(ConfigError, match=r"async def|not a function"):
        bad(app)


def test_two_start_hooks_of_one_name_are_refused(app: Hawser):
    app.on_start(pool := _named("pool"))
    assert pool
    with pytest.raises(ConfigError, match="already"):
        app.on_start(_named("pool"))


def test_a_hook_that_cannot_be_called_is_refused(app: Hawser):
    with pytest.raises(ConfigError, match="the app, or nothing"):

        @app.on_start
        def pool(app, other): ...


def _named(name: str):
    def hook() -> None: ...

    hook.__name__ = name
    return hook


def test_hooks_run_in_tests_too(hawser_app):
    seen = []

    @hawser_app.on_start
    async def pool() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @hawser_app.on_stop(pool)
    def close(value) -> None:
        seen.append("closed")

    @hawser_app.around
    async def traced(ctx, call):
        seen.append("around")
        return await call()

    @hawser_app.task
    async def ship(ctx: Context) -> bool:
        return ctx.state["pool"] is asyncio.get_running_loop()

    ship.enqueue()
    assert hawser_app.drain().jobs[0].result is True
    with hawser_app.inline():
        assert hawser_app.get(ship.enqueue().id).result is True
    assert seen == ["around", "closed"] * 2


def test_a_start_hook_may_enqueue_in_a_test_that_runs_jobs_inline(hawser_app):
    @hawser_app.task
    def warm_up() -> str:
        return "warm"

    @hawser_app.task
    def ship() -> None: ...

    @hawser_app.on_start
    def first() -> str:
        return str(warm_up.enqueue().id)

    with hawser_app.inline():
        ship.enqueue()
    assert [job.state for job in hawser_app.enqueued()] == ["done", "done"]


def test_hooks_and_log_lines_of_real_processes(tmp_path: Path):
    notes = tmp_path / "notes"
    notes.touch()
    with fleet(tmp_path) as ships:
        ships.environ["HAWSER_TEST_NOTES"] = str(notes)
        app = Hawser(ships.url)
        names = ("on_loop", "in_thread", "apart")
        tasks = {name: app.task(name=name)(getattr(hooked, name).fn) for name in names}
        worker = ships.start("--log-format", "json", app="tests.worker.hooked:app", ready=True)
        handles = {name: task.enqueue() for name, task in tasks.items()}
        eventually(lambda: all(app.get(handle.id).state == "done" for handle in handles.values()), 40, lambda: ships.log(worker))
        worker.terminate()
        assert worker.wait(30) == 0
        lines = [json.loads(line) for line in ships.log(worker).splitlines()]
        results = {name: app.get(handle.id).result for name, handle in handles.items()}
        app.close()
    assert results["on_loop"] == results["in_thread"] != results["apart"], "an isolated child has a pool of its own"
    said = [line.split() for line in notes.read_text().splitlines()]
    started = [pid for word, pid, *_ in said if word == "start"]
    assert sorted(started) == sorted(pid for word, pid, *_ in said if word == "stop")
    assert {f"pool-{pid}" for pid in started} == set(results.values())
    assert sorted(task for word, task, *_ in said if word == "around") == sorted(names)
    own = {line["message"]: line for line in lines if line["logger"] == "shop"}
    for message, name in (("on the loop", "on_loop"), ("in a thread", "in_thread"), ("apart", "apart")):
        line = own[message]
        assert (line["job_id"], line["task"], line["attempt"]) == (handles[name].id, name, 1)
        assert line["customer"] == 42


def test_extra_fields_are_kept_whatever_they_are():
    record = logging.makeLogRecord(
        {"msg": "hello", "customer": 42, "order": {1: object()}, "time": "noon", "odd": Odd(), "when": {"a": [1]}}
    )
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["customer"], line["_time"], line["when"]) == ("hello", 42, "noon", {"a": [1]})
    assert line["odd"] == "(Odd)"
    assert "customer=42" in PlainFormatter().format(record)
    assert CURRENT.get() is None


def test_a_line_of_uvicorn_says_its_message_once():
    record = logging.makeLogRecord({"msg": "Started [%d]", "args": (7,), "color_message": "Started [\x1b[36m%d\x1b[0m]"})
    assert PlainFormatter().format(record).endswith(": Started [7]")
    assert "color_message" not in json.loads(JsonFormatter().format(record))


class Odd:
    def __repr__(self) -> str:
        raise ValueError
