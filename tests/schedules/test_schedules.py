"""Schedules through an app: declared on tasks, and made at run time."""

from datetime import UTC, datetime, timedelta

import pytest

from hawser import (
    ConfigError,
    Context,
    Cron,
    Every,
    Hawser,
    InvalidJob,
    Job,
    OutcomeUnknown,
    ScheduleNotFound,
    State,
    UnknownTask,
    WrongState,
)
from hawser.clock import at
from hawser.testing.fault import Fault
from hawser.testing.faults import FaultyStore
from hawser.upkeep.scheduler import Declarer, Scheduler

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  # wrong on purpose


@pytest.fixture
async def app(store, clock):
    app = Hawser(store, clock=clock)

    @app.task(queue="reports", priority=7, max_attempts=2, timeout=60, tags=["nightly"], confirm_replay=True)
    def report(day: str = "today", pages: int = 1) -> None: ...

    @app.task
    def needs(arg: int) -> None: ...

    return app


@pytest.fixture
def fire(store):
    async def until_done():
        while await Scheduler(store).turn() == 0:
            pass

    return until_done


async def made(app: Hawser, name: str = "nightly") -> list[Job]:
    return (await app.afind(schedule=name)).jobs


async def test_a_schedule_is_created_and_fires(app, clock, fire):
    rule = Cron("30 2 * * *", tz="Europe/Berlin", payload={"day": "yesterday"})
    schedule = await app.schedules.acreate("nightly", "report", rule)
    assert schedule.next_tick == datetime(2026, 1, 2, 1, 30, tzinfo=UTC)
    assert (schedule.state, schedule.declared, schedule.task) == ("active", False, "report")
    assert await app.schedules.aget("nightly") == schedule
    assert await app.schedules.alist() == [schedule]
    clock.advance(86_400)
    await fire()
    [job] = await made(app)
    assert (job.task, job.queue, job.priority, job.max_attempts, job.timeout) == ("report", "reports", 7, 2, 60.0)
    assert (job.payload, job.tags, job.confirm_replay) == ({"day": "yesterday"}, ("nightly",), True)
    assert (job.schedule, job.tick, job.run_at) == ("nightly", schedule.next_tick, at(clock.now()))


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (
            lambda app: app.schedules.acreate("bad name", "report", Every(hours=1)),
            ConfigError,
            "schedule: 'bad name' is not a name",
        ),
        (lambda app: app.schedules.acreate("s", "reprt", Every(hours=1)), UnknownTask, "did you mean 'report'"),
        (lambda app: app.schedules.acreate("s", "report", "hourly"), ConfigError, "rule: 'hourly' is not a schedule; use Cron"),
        (lambda app: app.schedules.acreate("s", "needs", Every(hours=1)), InvalidJob, "payload.arg: missing"),
        (lambda app: app.schedules.acreate("s", "report", Every(hours=1, payload={"pages": "x"})), InvalidJob, "payload.pages"),
        (lambda app: app.schedules.aget("nobody"), ScheduleNotFound, "no schedule is called 'nobody'"),
        (lambda app: app.schedules.apause("nobody"), ScheduleNotFound, "nobody"),
        (lambda app: app.schedules.adelete("nobody"), ScheduleNotFound, "nobody"),
        (lambda app: app.schedules.aedit("nobody"), ConfigError, "nothing to change"),
        (lambda app: app.schedules.apreview("nobody"), ScheduleNotFound, "nobody"),
        (lambda app: app.schedules.apast("nobody"), ScheduleNotFound, "nobody"),
        (lambda app: app.schedules.apast("nobody", 0), ConfigError, "count: 0 is not a whole number"),
        (lambda app: app.schedules.apreview(Every(hours=1), 0), ConfigError, "count: 0 is not a whole number"),
        (lambda app: app.schedules.apreview(Every(hours=1), after=NAIVE), ConfigError, "after: "),
    ],
)
async def test_what_is_wrong_is_refused_and_nothing_is_written(app, make, error, said):
    with pytest.raises(error) as raised:
        await make(app)
    assert said in str(raised.value)
    assert await app.schedules.alist() == []


async def test_a_name_is_given_once(app):
    first = await app.schedules.acreate("nightly", "report", Every(hours=1))
    with pytest.raises(WrongState, match="exists already; edit it"):
        await app.schedules.acreate("nightly", "report", Every(hours=2))
    assert await app.schedules.alist() == [first]


async def test_a_schedule_is_edited(app, clock, fire):
    await app.schedules.acreate("nightly", "report", Every(hours=1, payload={"pages": 3}))
    edited = await app.schedules.aedit("nightly", Every(minutes=10))
    assert edited.next_tick == at(clock.now()) + timedelta(minutes=10)
    assert edited.definition.payload == {"pages": 3}
    await app.schedules.aedit("nightly", payload={"pages": 5})
    clock.advance(600)
    await fire()
    assert [job.payload for job in await made(app)] == [{"pages": 5}]
    await app.schedules.aedit("nightly", Every(minutes=10), payload={"day": "friday"})
    assert (await app.schedules.aget("nightly")).definition.payload == {"day": "friday"}
    with pytest.raises(InvalidJob, match=r"payload\.pagse"):
        await app.schedules.aedit("nightly", payload={"pagse": 5})


async def test_a_schedule_is_paused_and_resumed(app, clock, fire):
    await app.schedules.acreate("nightly", "report", Every(hours=1))
    paused = await app.schedules.apause("nightly", reason="moving", by="ann")
    assert (paused.state, paused.next_tick) == ("paused", None)
    clock.advance(9_000)
    await fire()
    assert await made(app) == []
    resumed = await app.schedules.aresume("nightly")
    assert resumed.next_tick == datetime(2026, 1, 1, 15, tzinfo=UTC)
    with pytest.raises(WrongState, match="is not paused"):
        await app.schedules.aresume("nightly")


async def test_a_schedule_is_run_by_hand_also_while_it_is_paused(app):
    await app.schedules.acreate("nightly", "report", Every(hours=1))
    await app.schedules.apause("nightly")
    id = await app.schedules.arun("nightly", by="ann")
    job = await app.aget(id)
    assert (job.state, job.schedule, job.tick) == (State.READY, "nightly", None)
    assert (await app.schedules.aget("nightly")).state == "paused"


async def test_the_next_tick_is_skipped(app, clock):
    await app.schedules.acreate("nightly", "report", Every(hours=1))
    assert (await app.schedules.askip("nightly")).next_tick == datetime(2026, 1, 1, 14, tzinfo=UTC)
    await app.schedules.apause("nightly")
    with pytest.raises(WrongState, match="is paused: there is no next tick to skip"):
        await app.schedules.askip("nightly")


async def test_a_schedule_is_deleted_and_its_jobs_stay(app):
    await app.schedules.acreate("nightly", "report", Every(hours=1))
    id = await app.schedules.arun("nightly")
    await app.schedules.adelete("nightly")
    assert await app.schedules.alist() == []
    assert (await app.aget(id)).state is State.READY


async def test_every_change_leaves_a_record(app, store):
    schedules = app.schedules
    await schedules.acreate("nightly", "report", Every(hours=1), by="ann", reason="new")
    await schedules.aedit("nightly", Every(hours=2), by="ann")
    await schedules.apause("nightly", by="ann")
    await schedules.aresume("nightly", by="ann")
    await schedules.arun("nightly", by="ann")
    await schedules.askip("nightly", by="ann")
    await schedules.adelete("nightly", by="ann")
    records = list(reversed(await store.audit()))
    assert [record.action for record in records] == [
        "create_schedule",
        "edit_schedule",
        "pause_schedule",
        "resume_schedule",
        "run_schedule",
        "skip_tick",
        "delete_schedule",
    ]
    assert {(record.by, record.target) for record in records} == {("ann", "schedule:nightly")}
    assert records[0].reason == "new"


async def test_the_next_ticks_are_shown_on_the_wall_of_their_zone(app):
    rule = Cron("30 2 * * *", tz="Europe/Berlin")
    ticks = await app.schedules.apreview(rule, 2)
    assert [tick.isoformat() for tick in ticks] == ["2026-01-02T02:30:00+01:00", "2026-01-03T02:30:00+01:00"]
    await app.schedules.acreate("nightly", "report", rule)
    await app.schedules.askip("nightly")
    assert (await app.schedules.apreview("nightly", 1))[0].isoformat() == "2026-01-03T02:30:00+01:00"
    later = await app.schedules.apreview(rule, 1, after=datetime(2026, 7, 1, tzinfo=UTC))
    assert later[0].isoformat() == "2026-07-01T02:30:00+02:00"
    assert await app.schedules.apreview(Every(hours=1, end=datetime(2026, 1, 1, tzinfo=UTC))) == []


async def test_the_last_ticks_are_shown_with_their_jobs(app, clock, fire):
    await app.schedules.acreate("nightly", "report", Every(minutes=1))
    clock.advance(60)
    await fire()
    await app.schedules.askip("nightly")
    await app.schedules.arun("nightly")
    clock.advance(120)
    await fire()
    ticks = await app.schedules.apast("nightly", 10)
    assert [past.tick.minute for past in ticks] == [3, 2, 1]
    assert [(past.job is None, past.left_out) for past in ticks] == [(False, None), (True, "skipped"), (False, None)]
    assert all(past.job is None or past.job.tick == past.tick for past in ticks)
    assert len(await app.schedules.apast("nightly", 1)) == 1


async def test_missed_skipped_and_paused_ticks_are_told_apart(app, clock, fire):
    await app.schedules.acreate("nightly", "report", Every(minutes=1, missed="skip", overlap="skip"))
    clock.advance(60)
    await fire()
    clock.advance(60)
    await fire()  # the first job still waits
    await app.schedules.apause("nightly")
    clock.advance(120)
    await app.schedules.aresume("nightly")
    clock.advance(200)  # no scheduler runs
    await app.acancel((await app.afind()).jobs[0].id)
    await fire()
    told = [(past.tick.minute, past.left_out) for past in await app.schedules.apast("nightly", 10)]
    assert told == [(7, None), (6, "missed"), (5, "missed"), (4, "paused"), (3, "paused"), (2, "skipped"), (1, None)]


async def test_a_change_and_a_tick_at_once_lose_nothing(app, store, clock, fire):
    """The scheduler fires between the look and the write of an edit: the edit is decided anew."""
    faulty = FaultyStore(store)
    other = Hawser(faulty, clock=clock)
    await app.schedules.acreate("nightly", "report", Every(minutes=1))
    clock.advance(60)

    async def meanwhile(_):
        await fire()

    faulty._sleep = meanwhile
    faulty.next("put_schedule", Fault.DELAY)
    await other.schedules.apause("nightly")
    assert faulty.calls["put_schedule"] == 2
    assert (await app.schedules.aget("nightly")).state == "paused"
    assert len(await made(app)) == 1


async def test_a_lost_answer_to_a_change_is_asked_for_again(app, store, clock):
    faulty = FaultyStore(store)
    other = Hawser(faulty, clock=clock)
    await app.schedules.acreate("nightly", "report", Every(hours=1))
    faulty.next("put_schedule", Fault.LOSE_REPLY)
    await other.schedules.arun("nightly")
    assert len(await made(app)) == 1
    faulty.next("put_schedule", Fault.LOSE_REQUEST, times=3)
    with pytest.raises(OutcomeUnknown):
        await other.schedules.arun("nightly")


def test_every_method_has_a_synchronous_twin(clock):
    with Hawser("memory://", clock=clock) as app:

        @app.task
        def report() -> None: ...

        assert app.schedules.create("s", "report", Every(hours=1)).name == "s"
        assert app.schedules.edit("s", Every(hours=2)).name == "s"
        assert app.schedules.pause("s").state == "paused"
        assert app.schedules.resume("s").state == "active"
        assert app.schedules.skip("s").skipped == 1
        assert app.get(app.schedules.run("s")).schedule == "s"
        assert [schedule.name for schedule in app.schedules.list()] == ["s"]
        assert app.schedules.get("s").name == "s"
        assert len(app.schedules.preview("s", 3)) == 3
        assert app.schedules.past("s", 3) == []
        app.schedules.delete("s")
        assert app.schedules.list() == []


# Declared on tasks.


async def test_a_task_declares_its_schedule(store, clock):
    app = Hawser(store, clock=clock)

    @app.task(schedule=Every(minutes=5, payload={"day": "monday"}))
    def report(ctx: Context, day: str) -> None: ...

    @app.task(schedule={"clean.up": Cron("@daily"), "clean.all": Cron("@weekly", payload={"all": True})}, queue="bulk")
    def clean(all: bool = False) -> None: ...

    await Declarer(store, app.declared()).turn()
    found = {schedule.name: schedule for schedule in await app.schedules.alist()}
    assert {name: (each.task, each.definition.payload) for name, each in found.items()} == {
        "report": ("report", {"day": "monday"}),
        "clean.up": ("clean", {}),
        "clean.all": ("clean", {"all": True}),
    }
    assert found["clean.up"].definition.queue == "bulk"
    assert all(schedule.declared for schedule in found.values())


async def test_a_declared_schedule_is_changed_in_code_only(store, clock):
    app = Hawser(store, clock=clock)

    @app.task(schedule=Every(minutes=5))
    def report() -> None: ...

    await Declarer(store, app.declared()).turn()
    with pytest.raises(WrongState, match="declared in code, on task 'report'; change it there"):
        await app.schedules.aedit("report", Every(minutes=1))
    with pytest.raises(WrongState, match="remove it there, or pause it here"):
        await app.schedules.adelete("report")
    with pytest.raises(WrongState, match="exists already"):
        await app.schedules.acreate("report", "report", Every(minutes=1))
    assert (await app.schedules.apause("report")).state == "paused"
    await Declarer(store, app.declared()).turn()
    assert (await app.schedules.aget("report")).state == "paused"


async def test_a_retired_schedule_may_be_deleted(store, clock):
    app = Hawser(store, clock=clock)

    @app.task(schedule=Every(minutes=5))
    def report() -> None: ...

    await Declarer(store, app.declared()).turn()
    clock.advance(61)
    await Declarer(store, ()).turn()
    assert (await app.schedules.aget("report")).state == "retired"
    await app.schedules.adelete("report")
    assert await app.schedules.alist() == []


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("@daily", "task 'report': schedule: '@daily' is not a schedule; use Cron"),
        ({"bad name": Every(hours=1)}, "task 'report': schedule: 'bad name' is not a name"),
        ({"good": "@daily"}, "is not a schedule; use Cron"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(schedule, said):
    app = Hawser("memory://")
    with pytest.raises(ConfigError) as error:

        @app.task(schedule=schedule)
        def report() -> None: ...

    assert said in str(error.value)


def test_a_payload_that_does_not_fit_is_refused_before_a_worker_starts():
    app = Hawser("memory://")

    @app.task(schedule=Every(hours=1, payload={"page": 1}))
    def report(pages: int) -> None: ...

    with pytest.raises(ConfigError, match=r"task 'report': schedule 'report': payload\.pages: missing"):
        app.declared()


def test_two_tasks_do_not_declare_the_same_schedule():
    app = Hawser("memory://")
    for name in ("a", "b"):
        app.task(name=name, schedule={"same": Every(hours=1)})(lambda: None)
    with pytest.raises(ConfigError, match="schedule 'same' is declared by 'a' and by 'b'"):
        app.declared()
