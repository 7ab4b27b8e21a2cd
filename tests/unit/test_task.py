"""Tasks: registration, options, inline runs, the context."""

from __future__ import annotations

import functools
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import hawser
from hawser import Context, Fixed, Hawser, InvalidJob, Limit, Retention
from hawser.errors import ConfigError
from hawser.handler.run_control import InlineRun
from hawser.job import FOREVER
from hawser.outcome import Done
from hawser.store import Settlement, Share
from hawser.task import declared_limits

if TYPE_CHECKING:
    from hawser import Context as Ctx


@pytest.fixture
def app():
    return Hawser("memory://")


def test_a_task_is_called_what_its_function_is_called(app):
    @app.task
    def resize(image_id: str) -> None:
        """Make it smaller."""

    assert resize.name == resize.__name__ == "resize"
    assert resize.__doc__ == "Make it smaller."
    assert app.tasks == {"resize": resize}
    assert repr(resize) == "<Task 'resize'>"


def test_the_mapping_of_tasks_cannot_be_changed(app):
    with pytest.raises(TypeError):
        app.tasks["x"] = None


def test_options_of_a_task_go_into_its_jobs(app):
    @app.task(
        name="mail.send",
        queue="mail",
        priority=7,
        max_attempts=3,
        timeout=timedelta(seconds=30),
        backoff=Fixed(every=5),
        tags=["a", "b"],
        isolate=True,
        concurrency=4,
        retention=Retention(done=60),
        confirm_replay=True,
    )
    def send(to: str) -> None: ...

    job = send.job("x")
    assert (job.task, job.queue, job.priority, job.max_attempts, job.timeout) == ("mail.send", "mail", 7, 3, 30.0)
    assert job.tags == ("a", "b")
    assert send.options.backoff == Fixed(every=5)
    assert send.options.isolate
    assert send.options.concurrency == 4


def test_defaults_are_those_of_the_requirements(app):
    @app.task
    def plain() -> None: ...

    assert plain.options.backoff is None, "what its queue says"
    job = plain.job()
    assert (job.queue, job.priority, job.max_attempts, job.timeout, job.delay, job.key) == ("default", 5, None, 300, 0, None)


def test_each_job_has_an_id_of_its_own(app):
    @app.task
    def plain() -> None: ...

    a, b = plain.job(), plain.job()
    assert a.id < b.id


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"name": ""}, "task: the name is empty"),
        ({"name": "a b"}, "task: 'a b' is not a name"),
        ({"name": None}, "task: None is not a text"),
        ({"queue": ""}, "queue: the name is empty"),
        ({"priority": 10}, "priority: 10 is not a whole number from 0 to 9"),
        ({"priority": True}, "priority: True"),
        ({"max_attempts": 0}, "max_attempts: 0"),
        ({"timeout": 0}, "timeout: 0"),
        ({"timeout": timedelta(seconds=-1)}, "timeout: -1"),
        ({"tags": ["a", ""]}, "tags: a text of 0 characters"),
        ({"backoff": 30}, "backoff: 30 is not a backoff; use Exponential, Linear or Fixed"),
        ({"isolate": "yes"}, "isolate: 'yes' is not True or False"),
        ({"confirm_replay": 1}, "confirm_replay: 1 is not True or False"),
        ({"concurrency": 0}, "concurrency: 0 is not a whole number from 1"),
        ({"concurrency": 1.5}, r"concurrency: 1\.5"),
        ({"retention": 60}, "retention: 60 is not a Retention"),
        ({"retention": Retention(dead=-1)}, r"retention\.dead: -1 is not a time"),
        ({"retries": 3}, "retries: no such option; did you mean 'max_attempts'"),
    ],
)
def test_a_wrong_option_is_refused_at_decoration(app, settings, word):
    with pytest.raises((ConfigError, InvalidJob), match=word):

        @app.task(**settings)
        def task() -> None: ...

    assert not app.tasks


def test_a_name_is_taken_once(app):
    @app.task(name="x")
    def one() -> None: ...

    with pytest.raises(ConfigError, match=r"task 'x' is already registered, for .*\.one; give this one another name="):

        @app.task(name="x")
        def two() -> None: ...

    assert app.tasks["x"] is one


def test_what_is_no_plain_function_is_refused(app):
    def generator() -> Any:
        yield 1

    async def stream() -> Any:
        yield 1

    class Thing:
        pass

    @app.task
    def task() -> None: ...

    for wrong in (generator, stream, Thing, task, 5, lambda: None, functools.partial(print), print):
        with pytest.raises((ConfigError, InvalidJob), match="task"):
            app.task(wrong)


def test_a_decorated_function_keeps_its_signature(app):
    def logged(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return wrapper

    @app.task
    @logged
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8
    with pytest.raises(InvalidJob, match=r"payload\.n"):
        double.job("4")


def test_using_changes_one_use_and_not_the_task(app):
    @app.task(queue="mail", tags=("a",))
    def send(to: str) -> None: ...

    other = send.using(queue="bulk", priority=1, delay=60, run_at=None, key="welcome:42", key_ttl=0, max_attempts=3)
    job = other.job(to="x")
    assert (job.queue, job.priority, job.delay, job.key, job.max_attempts, job.tags) == (
        "bulk",
        1,
        60,
        "welcome:42",
        3,
        ("a",),
    )
    assert other.using(priority=2).job("x").queue == "bulk"
    assert send.job("x").queue == "mail"


def test_using_takes_times_as_people_say_them(app):
    @app.task
    def send(to: str) -> None: ...

    when = datetime(2030, 1, 1, tzinfo=UTC)
    assert send.using(delay=timedelta(minutes=2)).job("x").delay == 120
    assert send.using(run_at=when).job("x").run_at == when
    assert send.using(key="k", key_ttl=timedelta(hours=1)).job("x").key_ttl == 3600
    assert send.using(key="k", key_ttl="forever").job("x").key_ttl == FOREVER
    assert send.using(timeout=timedelta(seconds=5)).job("x").timeout == 5


@pytest.mark.parametrize("wrong", [{"task": "x"}, {"body": b"{}"}, {"eta": 5}])
def test_using_refuses_what_is_no_option(app, wrong):
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(InvalidJob) as caught:
        send.using(**wrong)
    [error] = caught.value.errors
    assert error.field == next(iter(wrong))
    assert "no such option; " in error.message


def test_calling_a_task_runs_it_inline(app):
    @app.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(1, b=2) == 3
    assert app.stats().ready == 0


async def test_calling_an_async_task_gives_its_coroutine(app):
    @app.task
    async def add(a: int, b: int = 1) -> int:
        return a + b

    assert await add(1, b=2) == 3


def test_an_inline_run_has_a_context(app):
    @app.task(max_attempts=2)
    def work(ctx: Context, n: int) -> dict[str, Any]:
        ctx.extend()
        ctx.extend(timedelta(seconds=5))
        ctx.progress({"n": n})
        return {"attempt": ctx.attempt, "lease": ctx.lease, "payload": ctx.job.payload, "cancelled": ctx.cancelled}

    assert work(3) == {"attempt": 1, "lease": 0, "payload": {"n": 3}, "cancelled": False}
    assert work.wants_context


def test_the_context_is_known_by_its_annotation_or_by_its_name(app):
    @app.task
    def by_name(ctx, n): ...

    @app.task
    def by_type(run: Context, n: int) -> None: ...

    @app.task
    def by_dotted_type(run: hawser.Context, n: int) -> None: ...

    @app.task
    def by_unresolved_type(run: Ctx, n: int) -> None: ...

    @app.task
    def an_argument(ctx: str, n: int) -> None: ...

    assert by_name.job(1).body == by_type.job(1).body == by_dotted_type.job(1).body == b'{"n":1}'
    assert not an_argument.wants_context
    assert not by_unresolved_type.wants_context  # imported under TYPE_CHECKING, and under another name
    with pytest.raises(ConfigError, match="'Ctx' names something that does not exist at run time"):
        by_unresolved_type.job(1)


@pytest.mark.parametrize("kind", ["second", "keyword"])
def test_a_context_elsewhere_than_first_is_refused(app, kind):
    def second(n: int, ctx: Context) -> None: ...

    def keyword(*, ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="the context 'ctx' must be the first parameter"):
        app.task({"second": second, "keyword": keyword}[kind])


def test_children_of_an_inline_run_are_enqueued_when_it_returns(app):
    @app.task
    def child(n: int) -> None: ...

    @app.task
    def parent(ctx: Context, n: int) -> str:
        ctx.enqueue(child.job(n), child.job(n + 1))
        assert app.stats().ready == 0
        return "done"

    assert parent(1) == "done"
    assert sorted(job.payload["n"] for job in app.find(task="child").jobs) == [1, 2]


async def test_children_of_an_async_inline_run_are_enqueued_when_it_returns(app):
    @app.task
    async def child(n: int) -> None: ...

    @app.task
    async def parent(ctx: Context, n: int) -> str:
        ctx.enqueue(child.job(n))
        return "done"

    assert await parent(n=1) == "done"
    assert (await app.astats()).ready == 1


def test_children_of_a_failed_inline_run_are_not_enqueued(app):
    @app.task
    def parent(ctx: Context) -> None:
        ctx.enqueue(parent.job())
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        parent()
    assert app.stats().ready == 0


def context(app: Hawser) -> tuple[Context, InlineRun]:
    kept: list[Context] = []

    @app.task
    def work(ctx: Context) -> None:
        kept.append(ctx)

    work()
    run = InlineRun()
    return Context(kept[0].job, run), run


def test_a_context_asks_its_run(app):
    ctx, run = context(app)
    ctx.extend(5)
    ctx.progress([1, 2])
    assert (run.extended, run.progressed) == (5, b"[1,2]")


def test_a_context_refuses_what_it_cannot_pass_on(app):
    ctx, _ = context(app)
    with pytest.raises(InvalidJob, match=r"job: .*make one with task\.job"):
        ctx.enqueue("send_email")  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="progress: nan"):
        ctx.progress(float("nan"))
    with pytest.raises(ValueError, match="extend: '60' is not a time in seconds"):
        ctx.extend("60")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="extend: -1 is not a time in seconds"):
        ctx.extend(-1)
    assert ctx.then == []


def test_the_log_names_the_job(app, caplog):
    ctx, _ = context(app)
    with caplog.at_level(logging.INFO, logger="hawser"):
        ctx.log.info("hello %s", "you", extra={"more": 1})
    [record] = caplog.records
    assert record.getMessage() == "hello you"
    assert (record.job_id, record.task, record.attempt, record.more) == (ctx.job.id, "work", 1, 1)


@pytest.mark.parametrize(
    ("word", "ours"),
    [("delay", "enqueue"), ("apply_async", "using"), ("send", "enqueue"), ("defer", "enqueue"), ("s", "job")],
)
def test_the_method_of_another_library_says_what_it_is_called_here(app, word, ours):
    @app.task
    def send_email(to: str) -> None: ...

    with pytest.raises(AttributeError, match=rf"a task has no attribute '{word}'; use .*{ours}"):
        getattr(send_email, word)
    with pytest.raises(AttributeError, match=r"a task has no attribute 'nonsense'$"):
        _ = send_email.nonsense
    assert not hasattr(send_email, word)


def test_a_method_cannot_be_a_task_but_a_bound_or_static_one_can(app):
    with pytest.raises(ConfigError, match=r"task 'send': .*Mailer.send is a method, and a worker has no object to call it on"):

        class Mailer:
            @app.task
            def send(self, to: str) -> None: ...

    class Post:
        def send(self, to: str) -> str:
            return to

        @app.task
        @staticmethod
        def sort(letters: list[str]) -> list[str]:
            return sorted(letters)

    assert app.task(name="bound")(Post().send)("x") == "x"
    assert Post.sort(["b", "a"]) == ["a", "b"]

    @app.task
    def selfish(self: str) -> str:
        return self

    assert selfish("a function in a function may call its argument what it likes")


def test_a_singleton_runs_one_job_at_a_time_over_all_workers(app):
    @app.task(singleton=True)
    def report() -> None: ...

    @app.task
    def mail() -> None: ...

    assert declared_limits(app.tasks) == {"report": Limit(running=1), "mail": None}
    with pytest.raises(ConfigError, match="singleton: it has a limit already"):
        app.task(singleton=True, limit=Limit(running=2))(test_a_task_is_called_what_its_function_is_called)


async def test_of_a_singleton_s_jobs_one_is_given_out(app):
    @app.task(singleton=True)
    def report() -> None: ...

    store = await app.store()
    await store.declare_limits(declared_limits(app.tasks))
    for _ in range(3):
        await report.aenqueue()
    [run] = await store.claim([Share("default")], 5, "w", 60)
    assert await store.claim([Share("default")], 5, "w", 60) == []
    await store.settle([Settlement(run.id, run.lease, Done())])
    assert len(await store.claim([Share("default")], 5, "w", 60)) == 1
