"""The app: enqueue in every way, look, act, lose answers."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from hawser import (
    ConfigError,
    ConfirmationNeeded,
    Context,
    Hawser,
    HawserError,
    InvalidJob,
    JobNotFound,
    NewJob,
    QueueFull,
    State,
    UnknownTask,
    WrongState,
)
from hawser.outcome import Dead, Failure
from hawser.store import Acted, NewStep, Settlement, Share
from hawser.value.fingerprint import Group, fingerprint
from hawser.value.ids import new_id

GUARD = 30.0
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001  # what must be refused


def within(seconds: float, work: Any) -> Any:
    """Run the work in a thread and give up loudly when it hangs."""
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"still hanging after {seconds} s"
    assert ended, "it raised; see above"
    return ended[0]


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def app(url):
    app = Hawser(url)

    @app.task(queue="mail")
    async def send(to: str, template: str = "welcome") -> None: ...

    @app.task(confirm_replay=True)
    def pay(amount: int) -> None: ...

    with app:
        yield app


def kill(app: Hawser, id: str, *steps: str) -> None:
    """Make a waiting job dead, the way a worker would, behind these steps."""

    async def run() -> None:
        store = app._connection.store
        job = await store.get(id)
        assert job is not None
        [claimed] = await store.claim([Share(job.queue)], 1, "w", 30.0)
        assert claimed.id == id
        await store.record_steps([NewStep(id=id, lease=claimed.lease, name=name, value=b"1") for name in steps])
        await store.settle([Settlement(id, claimed.lease, Dead(Failure("boom")))])

    app._connection.portal.call(run())


def test_a_job_can_be_enqueued_and_looked_at(app):
    handle = app.tasks["send"].enqueue("a@example.com")
    assert handle.created
    job = app.get(handle.id)
    assert (job.task, job.queue, job.payload, job.state) == ("send", "mail", {"to": "a@example.com"}, State.READY)
    assert app.stats("mail").ready == app.stats().ready == 1


def test_a_job_can_be_enqueued_by_name(app):
    handle = app.enqueue("send", {"to": "x"}, queue="bulk", priority=9, tags=["t"])
    job = app.get(handle.id)
    assert (job.queue, job.priority, job.tags, job.payload) == ("bulk", 9, ("t",), {"to": "x"})


def test_many_jobs_are_one_write(app):
    send = app.tasks["send"]
    handles = app.enqueue_many([send.job(to=str(n)) for n in range(100)])
    assert len({handle.id for handle in handles}) == 100
    assert all(handle.created for handle in handles)
    assert app.stats("mail").ready == 100
    assert app.enqueue_many([]) == []
    assert len(app.enqueue_many(send.job(to=t) for t in "abc")) == 3


def test_a_second_job_with_the_key_is_the_first(app):
    keyed = app.tasks["send"].using(key="k")
    first, second = keyed.enqueue("a"), keyed.enqueue("b")
    assert second == type(second)(first.id, created=False)
    assert app.stats().ready == 1


async def test_every_plain_method_has_a_twin(url):
    def twins(kind: type) -> set[str]:
        public = {name for name in dir(kind) if not name.startswith("_")}
        return {name for name in public if f"a{name}" in public}

    assert twins(Hawser) >= {
        *("enqueue", "enqueue_many", "get", "find", "stats", "cancel", "requeue", "replay", "discard"),
        *("pause", "resume", "set_limit", "clear_limit", "limits", "open_breaker", "close_breaker", "breakers", "open", "close"),
    }
    for name in twins(Hawser):
        plain, twin = getattr(Hawser, name), getattr(Hawser, f"a{name}")
        assert inspect.signature(plain) == inspect.signature(twin)
        assert plain.__name__ == name


async def test_the_twins_work_on_the_callers_loop(url):
    async with Hawser(url) as app:

        @app.task
        async def work(n: int) -> None: ...

        one = await work.aenqueue(1)
        two = await app.aenqueue("work", {"n": 2})
        [three] = await app.aenqueue_many([work.job(3)])
        assert (await app.aget(two.id)).payload == {"n": 2}
        assert {job.id for job in (await app.afind(task="work")).jobs} == {one.id, two.id, three.id}
        assert await app.acancel(one.id) is Acted.DONE
        await app.arequeue(one.id)
        await app.aset_limit(queue="default", max_depth=3)
        with pytest.raises(QueueFull):
            await work.aenqueue(4)
        await app.apause(task="work", reason="deploy")
        assert await app.aresume(task="work")
        assert (await app.astats()).ready == 3


def test_threads_enqueue_at_once_from_cold(url):
    app = Hawser(url)

    @app.task
    def work(n: int) -> None: ...

    start = threading.Barrier(32)

    def produce(thread: int) -> list[str]:
        start.wait(30)
        return [work.enqueue(thread * 100 + n).id for n in range(20)]

    def run() -> list[list[str]]:
        with ThreadPoolExecutor(32) as pool:
            return list(pool.map(produce, range(32)))

    with app:
        ids = within(GUARD, run)
        assert len({id for some in ids for id in some}) == 640
        assert app.stats().ready == 640


def test_plain_enqueue_works_inside_a_running_loop(url):
    app = Hawser(url)

    @app.task
    def work(n: int) -> None: ...

    async def main() -> int:
        # Both worlds at once on one loop: awaited ones are under way while the plain one blocks the loop.
        awaited = [asyncio.create_task(work.aenqueue(n)) for n in range(20)]
        await asyncio.sleep(0)
        for n in range(20):
            work.enqueue(n)
        await asyncio.gather(*awaited)
        return app.stats().ready

    with app:
        assert within(GUARD, lambda: asyncio.run(main())) == 40


def test_an_app_may_be_used_from_several_loops(url):
    app = Hawser(url)

    @app.task
    def work(n: int) -> None: ...

    async def main() -> None:
        await asyncio.gather(*(work.aenqueue(n) for n in range(10)))

    with app:
        within(GUARD, lambda: [asyncio.run(main()) for _ in range(3)])
        assert app.stats().ready == 30


def test_a_closed_app_opens_again(tmp_path):
    app = Hawser(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def work() -> None: ...

    with app:
        handle = work.enqueue()
    app.close()
    assert app.get(handle.id).state is State.READY
    app.close()


def test_jobs_outlive_the_app(tmp_path):
    for _ in range(2):
        with Hawser(f"sqlite:///{tmp_path}/jobs.db") as app:

            @app.task
            def work() -> None: ...

            work.enqueue()
    with Hawser(f"sqlite:///{tmp_path}/jobs.db") as app:
        assert app.stats().ready == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on; it is what is tested
def test_a_forked_child_has_a_store_of_its_own(tmp_path):
    app = Hawser(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def work() -> None: ...

    with app:
        work.enqueue()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work.enqueue()
                code = 0
            finally:
                os._exit(code)
        try:
            _, status = within(GUARD, lambda: os.waitpid(child, 0))
        except AssertionError:
            os.kill(child, signal.SIGKILL)
            raise
        assert status == 0
        work.enqueue()
        assert app.stats().ready == 3


def test_the_store_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HAWSER_STORE", "memory://")
    assert Hawser().config.store == "memory://"
    monkeypatch.delenv("HAWSER_STORE")
    assert Hawser().config.store == "sqlite:///hawser.db"


def test_an_unknown_task_is_named_with_those_near(app):
    with pytest.raises(UnknownTask, match=r"task: no task is called 'sned'; did you mean 'send'\?"):
        app.enqueue("sned", {})
    with pytest.raises(UnknownTask, match=r"task: no task is called 'zzz'; register it with @app\.task"):
        app.enqueue("zzz", {})


def test_a_payload_by_name_is_a_dict(app):
    with pytest.raises(InvalidJob, match="payload: list; use a dict of the arguments by name"):
        app.enqueue("send", ["x"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"task": "zzz"}, "jobs[1].task"),
        ({"priority": 11}, "jobs[1].priority"),
        ({"body": b'{"to":1}'}, "jobs[1].payload.to"),
        ({"body": b"nonsense"}, "jobs[1].payload"),
        ({"body": b'{"to":"' + b"x" * 70_000 + b'"}'}, "jobs[1].payload"),
        ({"id": "me"}, "jobs[1].id"),
    ],
)
def test_a_job_made_by_hand_is_checked_again_and_stops_all(app, change, field):
    good = app.tasks["send"].job("x")
    wrong = NewJob(**{**msgspec.structs.asdict(good), "id": new_id(), **change})
    with pytest.raises(InvalidJob) as caught:
        app.enqueue_many([good, wrong])
    assert caught.value.errors[0].field == field
    assert app.stats().ready == 0


def test_what_is_no_job_is_refused(app):
    with pytest.raises(InvalidJob, match=r"jobs\[0\]\.job: str is not a new job"):
        app.enqueue_many(["send"])


def test_a_missing_job_is_said_to_be_missing(app):
    id = new_id()
    for act in (app.get, app.cancel, app.requeue, app.discard, lambda gone: app.replay(gone, {})):
        with pytest.raises(JobNotFound, match=id):
            act(id)


def test_cancel_ends_a_waiting_job_and_says_why_it_cannot_again(app):
    id = app.enqueue("send", {"to": "x"}).id
    assert app.cancel(id, reason="typo", by="ada") is Acted.DONE
    assert app.get(id).reason == "typo"
    with pytest.raises(WrongState, match=f"cannot cancel job {id}: it is cancelled; only a ready or running job"):
        app.cancel(id)


def test_requeue_runs_a_dead_job_again(app):
    id = app.enqueue("send", {"to": "x"}).id
    with pytest.raises(WrongState, match="it is ready; only a dead or cancelled job can be requeued"):
        app.requeue(id)
    kill(app, id)
    app.requeue(id)
    assert (app.get(id).state, app.get(id).attempt) == (State.READY, 0)


def test_a_group_of_dead_jobs_is_requeued_over_a_time(app):
    ids = []
    for _ in range(3):
        ids.append(app.enqueue("send", {"to": "x"}).id)
        kill(app, ids[-1])
    group = Group("send", fingerprint(app.get(ids[0]).errors[-1].error)).id
    for wrong in (0, -1, "soon", float("nan")):
        with pytest.raises(ConfigError, match="spread"):
            app.requeue(group=group, spread=wrong)
    with pytest.raises(ConfigError, match="spread"):
        app.requeue(ids[0], spread=60)
    assert app.requeue(group=group, spread=30) == 3
    due = [app.get(id).run_at for id in reversed(ids)]
    assert [(each - due[0]).total_seconds() for each in due] == [0, 10, 20]


def test_a_group_of_dead_jobs_is_requeued_and_discarded(app):
    ids = []
    for _ in range(3):
        ids.append(app.enqueue("send", {"to": "x"}).id)
        kill(app, ids[-1])
    other = app.enqueue("pay", {"amount": 1}).id
    kill(app, other)
    error = app.get(ids[0]).errors[-1].error
    group = Group("send", fingerprint(error)).id
    with pytest.raises(ConfigError, match="id, group: give exactly one of the two"):
        app.requeue(ids[0], group=group)
    with pytest.raises(ConfigError, match="id, group: give exactly one of the two"):
        app.discard()
    assert app.requeue(group=group, reason="mended") == 3
    assert app.requeue(group=group) == 0
    assert {app.get(id).state for id in ids} == {State.READY}
    assert app.get(other).state is State.DEAD
    for id in ids:
        kill(app, id)
    assert app.discard(group=group, reason="old") == 3
    assert (app.get(ids[0]).state, app.get(ids[0]).reason) == (State.CANCELLED, "old")
    records = [record for record in app._connection.portal.call(app._connection.store.audit()) if record.filter]
    assert [(record.action, record.filter["group"]) for record in records] == [("discard", group), ("requeue", group)]


def test_a_group_that_asks_for_a_confirmation_is_not_requeued_without_one(app):
    id = app.enqueue("pay", {"amount": 1}).id
    kill(app, id)
    group = Group("pay", fingerprint(app.get(id).errors[-1].error)).id
    with pytest.raises(ConfirmationNeeded, match="confirm=True"):
        app.requeue(group=group)
    assert app.get(id).state is State.DEAD
    assert app.requeue(group=group, confirm=True) == 1


def test_requeue_says_when_the_key_is_taken(app):
    keyed = app.tasks["send"].using(key="k")
    id = keyed.enqueue("x").id
    app.cancel(id)
    keyed.enqueue("y")
    with pytest.raises(WrongState, match="another job holds the key 'k' in queue 'mail'"):
        app.requeue(id)


def test_a_task_marked_so_is_replayed_only_with_a_confirmation(app):
    id = app.enqueue("pay", {"amount": 5}).id
    kill(app, id)
    with pytest.raises(ConfirmationNeeded, match=r"task 'pay' asks for a confirmation .* repeat with confirm=True"):
        app.requeue(id)
    with pytest.raises(ConfirmationNeeded):
        app.replay(id, {"amount": 6})
    assert app.get(id).state is State.DEAD
    app.requeue(id, confirm=True)
    assert app.get(id).state is State.READY


@pytest.mark.parametrize("to", ["charge", None])
def test_a_task_marked_so_is_rewound_only_with_a_confirmation(app, to):
    id = app.enqueue("pay", {"amount": 5}).id
    kill(app, id, "charge", "mail")
    before = app.get(id), app.steps(id)
    with pytest.raises(ConfirmationNeeded, match=rf"task 'pay' asks for a confirmation before job {id} .* confirm=True"):
        app.rewind(id, to=to)
    assert (app.get(id), app.steps(id)) == before
    assert app._connection.portal.call(app._connection.store.audit()) == []
    app.rewind(id, to=to, confirm=True)
    assert app.get(id).state is State.READY
    assert [step.name for step in app.steps(id)] == ([] if to is None else [to])


def test_replay_puts_an_edited_job_in_the_place_of_a_dead_one(app):
    old = app.tasks["send"].using(priority=8, tags=["t"], key="k", max_attempts=2).enqueue("wrong")
    kill(app, old.id)
    with pytest.raises(InvalidJob, match=r"payload\.to: Expected `str`"):
        app.replay(old.id, {"to": 5})
    assert app.get(old.id).state is State.DEAD
    new = app.replay(old.id, {"to": "right"}, reason="fixed", priority=9)
    job = app.get(new.id)
    assert (job.payload, job.parent_id, job.queue, job.priority) == ({"to": "right"}, old.id, "mail", 9)
    assert (job.tags, job.key, job.max_attempts) == (("t",), "k", 2)
    assert app.get(old.id).state is State.CANCELLED
    with pytest.raises(WrongState, match=r"cannot replay job .*: it is cancelled"):
        app.replay(old.id, {"to": "x"})


def test_replay_leaves_a_hold_for_ever_with_the_old_job(app):
    old = app.tasks["send"].using(key="k", key_ttl="forever").enqueue("wrong")
    kill(app, old.id)
    new = app.replay(old.id, {"to": "right"})
    assert app.get(new.id).key is None
    other = app.tasks["send"].using(key="k").enqueue("x")
    assert other.id == old.id


def test_discard_keeps_the_reason(app):
    id = app.enqueue("send", {"to": "x"}).id
    with pytest.raises(WrongState, match="it is ready; only a dead job can be discarded"):
        app.discard(id, reason="x")
    kill(app, id)
    app.discard(id, reason="known fault")
    assert (app.get(id).state, app.get(id).reason) == (State.CANCELLED, "known fault")


def test_pause_holds_a_queue_or_a_task_and_resume_ends_it(app):
    app.pause(queue="mail", reason="deploy", until=datetime.now(UTC) + timedelta(hours=1))
    assert app.stats("mail").paused
    assert app.resume(queue="mail")
    assert not app.resume(queue="mail")
    app.pause(task="send")
    assert app.resume(task="send")


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda app: app.pause(), "queue, task: give exactly one of the two"),
        (lambda app: app.pause(queue="a", task="b"), "queue, task: give exactly one of the two"),
        (lambda app: app.pause(queue=""), "queue: the name is empty"),
        (lambda app: app.pause(queue="a", until=NAIVE), "until: .*time zone"),
        (lambda app: app.resume(task="a b"), "task: 'a b' is not a name"),
        (lambda app: app.stats(""), "queue: the name is empty"),
        (lambda app: app.set_limit(queue="mail", max_depth=-1), "max_depth: -1"),
        (lambda app: app.find(state="lost"), "state: 'lost' is not one of them; known are ready, running, done, dead, cancelled"),
        (lambda app: app.find(since=NAIVE), "since: .*time zone"),
        (lambda app: app.find(limit=0), "limit: 0"),
        (lambda app: app.find(limit=10_000), "limit: 10000"),
        (lambda app: app.find(colour="red"), "find: .*colour.*known are state, queue"),
    ],
)
def test_a_wrong_argument_is_named(app, act, word):
    with pytest.raises(ConfigError, match=word):
        act(app)


def test_find_follows_pages_and_takes_states_as_words(app):
    app.enqueue_many([app.tasks["send"].job(str(n)) for n in range(25)])
    seen, after = [], None
    while True:
        page = app.find(state="ready", queue="mail", after=after, limit=10)
        seen += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 25


def test_a_full_queue_refuses_and_writes_nothing(app):
    app.set_limit(queue="mail", max_depth=2)
    app.enqueue("send", {"to": "x"})
    send = app.tasks["send"]
    with pytest.raises(QueueFull, match="queue 'mail' holds 1 waiting jobs of at most 2"):
        app.enqueue_many([send.job("a"), send.job("b")])
    assert app.stats("mail").ready == 1
    app.clear_limit(queue="mail")
    app.enqueue_many([send.job("a"), send.job("b")])


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"max_payload": 0}, "max_payload: Expected `int` >= 2"),
        ({"enqueue_tries": "3"}, "enqueue_tries: Expected `int`, got `str`"),
        ({"max_paylod": 1}, "max_paylod: no such setting; did you mean 'max_payload'?"),
    ],
)
def test_a_wrong_setting_is_named(settings, word):
    with pytest.raises(ConfigError, match=word):
        Hawser("memory://", **settings)


def test_max_payload_is_a_setting(url):
    with Hawser(url, max_payload=100) as app:

        @app.task
        def work(text: str) -> None: ...

        work.enqueue("x" * 80)
        with pytest.raises(InvalidJob, match="payload: 101 bytes of JSON; at most 100"):
            work.enqueue("x" * 90)


def test_a_handler_may_enqueue_while_its_app_is_used_by_others(app):
    @app.task
    def parent(ctx: Context, n: int) -> int:
        app.tasks["send"].enqueue(str(n))
        return n

    def run() -> list[int]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(parent, range(40)))

    assert within(GUARD, run) == list(range(40))
    assert Counter(job.task for job in app.find().jobs) == {"send": 40}


def test_every_error_is_of_one_root():
    assert issubclass(UnknownTask, InvalidJob)
    assert issubclass(InvalidJob, HawserError)


def test_arguments_that_do_not_fit_are_told_by_the_name_that_was_called():
    app = Hawser("memory://")
    with pytest.raises(TypeError) as caught:
        app.pause("mail")  # type: ignore[call-arg]  # on purpose
    assert str(caught.value) == (
        "Hawser.pause() takes 1 positional argument but 2 were given; give by name: queue=, task=, reason=, until=, by="
    )
    with pytest.raises(TypeError, match=r"^Hawser\.get\(\) missing 1 required positional argument: 'id'$"):
        app.get()  # type: ignore[call-arg]  # on purpose
