"""Schedules: what is due, firing, changing and removing."""

from __future__ import annotations

import asyncio
import time

import pytest

from hawser.clock import at, to_us
from hawser.firing import Advanced
from hawser.job import State
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Outcome
from hawser.policy import QueuePolicy
from hawser.rule import Every, text_of
from hawser.schedule import Definition, Schedule, create, pause, plan, redefine, run_now
from hawser.store import OVERDUE, Filter, Limits, Signature, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, a_job, add_many, ids, now, seen, settle, take, take_one, write

MINUTELY = text_of(Every(minutes=1))
CAREFUL = text_of(Every(minutes=1, overlap="skip"))


def a_definition(name: str = "s", rule_text: str = MINUTELY, **fields: object) -> Definition:
    return Definition(**{"name": name, "rule_text": rule_text, "task": "work", **fields})  # type: ignore[arg-type]


async def created(store: Store, *names: str, **fields: object) -> None:
    for name in names or ("s",):
        advance = create(a_definition(name, **fields), (await store.due_schedules(0)).now)  # type: ignore[arg-type]
        assert await store.fire([advance]) == [Advanced.DONE]


async def stands(store: Store, name: str = "s") -> Schedule:
    [schedule] = await store.schedules([name])
    return schedule


async def fired(store: Store) -> list[Advanced]:
    """Fire what is due, as a scheduler would."""
    due = await store.due_schedules(100)
    return await store.fire([plan(schedule, due.now) for schedule in due.schedules])


async def jobs_of(store: Store, name: str = "s") -> list[str]:
    return ids((await store.find(Filter(schedule=name))).jobs)


async def test_schedules_are_given_by_name(store: Store) -> None:
    """The schedules with these names, or all, in order of their names; a name that none has is passed over."""
    assert await store.schedules() == []
    await created(store, "b", "c", "a")
    assert [schedule.name for schedule in await store.schedules()] == ["a", "b", "c"]
    assert [schedule.name for schedule in await store.schedules(["c", "nobody", "a", "a"])] == ["a", "c"]
    assert await store.schedules([]) == []


async def test_a_schedule_comes_back_as_it_was_put(store: Store, reopen: Opener, clock: ManualClock) -> None:
    advance = create(
        a_definition(
            body=b'{"to": "\\u00fc"}', queue="mail", priority=7, max_attempts=2, timeout=9.5, tags=("x",), confirm_replay=True
        ),
        clock.now(),
        declared=True,
    )
    assert await store.fire([advance]) == [Advanced.DONE]
    store = await reopen()
    assert await store.schedules() == [advance.schedule]
    assert (await stands(store)).rule == Every(minutes=1)


async def test_a_store_says_what_is_due(store: Store, clock: ManualClock) -> None:
    """
    The time of the store, and up to `limit` schedules that are due by it, those due for longest first. It says in how many
    seconds the next one is due.
    """
    due = await store.due_schedules(10)
    assert (due.now, due.schedules, due.next_in) == (clock.now(), [], None)
    await created(store, "hourly", rule_text=text_of(Every(hours=1)))
    await created(store, "often", "other")
    due = await store.due_schedules(10)
    assert (due.schedules, due.next_in) == ([], 60.0)
    clock.advance(61)
    due = await store.due_schedules(10)
    assert [schedule.name for schedule in due.schedules] == ["often", "other"]
    assert (due.now, due.next_in) == (clock.now(), 3_600 - 61)
    clock.advance(3_600 - 61)
    assert [schedule.name for schedule in (await store.due_schedules(10)).schedules] == ["often", "other", "hourly"]
    few = await store.due_schedules(2)
    assert (len(few.schedules), few.next_in) == (2, 0.0)
    none = await store.due_schedules(0)
    assert (none.schedules, none.next_in) == ([], 0.0)


async def test_a_schedule_that_stands_still_is_not_due(store: Store, clock: ManualClock) -> None:
    """The time of the store, and up to `limit` schedules that are due by it, those due for longest first."""
    await created(store, "paused", "removed")
    await store.fire([pause(await stands(store, "paused"), clock.now(), "ann", None)])
    await store.delete_schedule("removed", SIGN)
    clock.advance(1_000)
    assert await store.due_schedules(10) == type(await store.due_schedules(10))(clock.now(), [], None)


async def test_the_cost_of_what_is_due_does_not_grow_with_the_schedules(store: Store, clock: ManualClock) -> None:
    """Its cost does not grow with the number of schedules."""
    await created(store, "first")

    async def fill(start: int, count: int) -> None:
        rule = text_of(Every(hours=5))
        many = [create(a_definition(f"s{number}", rule), clock.now()) for number in range(start, start + count)]
        assert set(await store.fire(many)) == {Advanced.DONE}

    async def cost() -> float:
        spent = []
        for _ in range(9):
            started = time.perf_counter()
            due = await store.due_schedules(100)
            spent.append(time.perf_counter() - started)
            assert [schedule.name for schedule in due.schedules] == ["first"]
        return min(spent)

    await fill(0, 500)
    clock.advance(61)
    few = await cost()
    await fill(500, 4_500)
    assert await cost() < 2 * few + 0.002


async def test_a_tick_makes_one_job_that_says_so(store: Store, clock: ManualClock) -> None:
    """Put schedules forward and add the jobs of their ticks, each schedule together with its jobs or not at all."""
    about = {"queue": "mail", "priority": 7, "max_attempts": 2, "timeout": 9.0, "tags": ("x",), "confirm_replay": True}
    await created(store, body=b'{"n":1}', **about)
    clock.advance(61)
    assert await fired(store) == [Advanced.DONE]
    schedule = await stands(store)
    assert schedule.last_tick == now(clock, -1)
    assert schedule.next_tick == now(clock, 59)
    assert schedule.fired == 1
    claimed = await take_one(store, "mail")
    assert (claimed.id, claimed.schedule, claimed.tick) == (schedule.last_job_id, "s", schedule.last_tick)
    job = await seen(store, claimed.id)
    assert (job.schedule, job.tick, job.run_at, job.enqueued_at) == ("s", now(clock, -1), now(clock), now(clock))
    assert (job.task, job.queue, job.priority, job.max_attempts, job.timeout) == ("work", "mail", 7, 2, 9.0)
    assert (job.tags, job.body, job.confirm_replay) == (("x",), b'{"n":1}', True)
    assert await fired(store) == []


async def test_the_job_of_a_tick_has_the_attempts_of_its_queue(store: Store, clock: ManualClock) -> None:
    """
    A job that says nothing of its attempts has as many as its queue's policy says now, else `DEFAULT_ATTEMPTS`.
    """
    await created(store)
    await store.set_policy("default", QueuePolicy(max_attempts=3), SIGN)
    clock.advance(61)
    await fired(store)
    assert (await take_one(store)).max_attempts == 3


async def test_many_schedulers_fire_a_tick_once(store: Store, second: Opener, clock: ManualClock) -> None:
    """An advance that was decided on another revision than the current one changes nothing."""
    other = await second()
    names = [f"s{number}" for number in range(5)]
    await created(store, *names)
    for _ in range(5):
        clock.advance(60)
        answers = await asyncio.gather(*(fired(each) for each in (store, other) * 3))
        assert sum(answer.count(Advanced.DONE) for answer in answers) == len(names)
    for name in names:
        assert len(await jobs_of(store, name)) == 5
        assert (await stands(store, name)).fired == 5


async def test_what_was_decided_too_early_changes_nothing(store: Store, clock: ManualClock) -> None:
    """An advance that was decided on another revision than the current one changes nothing."""
    await created(store)
    clock.advance(61)
    old = plan(await stands(store), clock.now())
    await store.fire([pause(await stands(store), clock.now(), "ann", None)])
    before = await stands(store), await jobs_of(store)
    assert await store.fire([old]) == [Advanced.STALE]
    assert (await stands(store), await jobs_of(store)) == before


async def test_a_schedule_is_not_created_twice(store: Store, clock: ManualClock) -> None:
    """An advance that was decided on another revision than the current one changes nothing."""
    await created(store)
    before = await stands(store)
    assert await store.fire([create(a_definition(), clock.now())]) == [Advanced.STALE]
    assert await stands(store) == before


async def test_what_was_decided_on_a_removed_schedule_changes_nothing(store: Store, clock: ManualClock) -> None:
    """An advance that was decided on another revision than the current one changes nothing."""
    await created(store)
    clock.advance(61)
    old = plan(await stands(store), clock.now())
    await store.delete_schedule("s", SIGN)
    assert await store.fire([old]) == [Advanced.STALE]
    await created(store)
    assert await store.fire([old]) == [Advanced.STALE]
    assert await jobs_of(store) == []
    assert (await stands(store)).fired == 0


async def test_the_others_go_on_when_one_was_changed(store: Store, clock: ManualClock) -> None:
    """
    An advance that was decided on another revision than the current one changes nothing. Put schedules forward and add the
    jobs of their ticks, each schedule together with its jobs or not at all.
    """
    await created(store, "a", "b", "c")
    clock.advance(61)
    advances = [plan(schedule, clock.now()) for schedule in await store.schedules()]
    await store.fire([plan(await stands(store, "b"), clock.now())])
    assert await store.fire(advances) == [Advanced.DONE, Advanced.STALE, Advanced.DONE]
    assert [len(await jobs_of(store, name)) for name in "abc"] == [1, 1, 1]


async def test_an_advance_that_is_repeated_is_made_once(store: Store, reopen: Opener, clock: ManualClock) -> None:
    """One that was made before changes nothing and says so."""
    await created(store)
    clock.advance(61)
    advance = plan(await stands(store), clock.now())
    assert await store.fire([advance, advance]) == [Advanced.DONE, Advanced.REPEATED]
    before = await stands(store), await jobs_of(store)
    store = await reopen()
    assert await store.fire([advance]) == [Advanced.REPEATED]
    assert (await stands(store), await jobs_of(store)) == before


async def test_advances_of_one_schedule_follow_each_other(store: Store, clock: ManualClock) -> None:
    """An advance that was decided on another revision than the current one changes nothing."""
    first = create(a_definition(), clock.now())
    clock.advance(61)
    second = plan(first.schedule, clock.now())
    clock.advance(60)
    third = plan(second.schedule, clock.now())
    assert await store.fire([first, second, third]) == [Advanced.DONE] * 3
    assert await stands(store) == third.schedule
    assert len(await jobs_of(store)) == 2


async def test_a_full_queue_takes_the_job_of_a_tick(store: Store, clock: ManualClock) -> None:
    """The jobs are added as by enqueue, whatever the depth limit."""
    await created(store)
    await store.set_limits("default", Limits(max_depth=0), SIGN)
    clock.advance(61)
    assert await fired(store) == [Advanced.DONE]
    assert (await store.stats("default")).ready == 1


async def test_jobs_of_ticks_are_counted_and_give_a_wake(store: Store, clock: ManualClock) -> None:
    """The jobs are added as by enqueue, whatever the depth limit."""
    await created(store)
    clock.advance(61)
    async with asyncio.timeout(5):
        waiter = asyncio.create_task(store.wait(["default"], 600))
        await asyncio.sleep(0.01)
        await fired(store)
        await waiter
    figures = await store.stats("default")
    assert (figures.ready, figures.due, figures.scheduled) == (1, 1, 0)
    assert figures.rates["enqueued"] > 0


async def test_a_tick_that_is_due_later_by_jitter_waits(store: Store, clock: ManualClock) -> None:
    """The jobs are added as by enqueue, whatever the depth limit."""
    await created(store, rule_text=text_of(Every(minutes=1, jitter=30)))
    clock.advance(60)
    await fired(store)
    job = await seen(store, (await jobs_of(store))[0])
    assert job.tick == now(clock)
    assert now(clock) < job.run_at < now(clock, 30)
    assert await take(store) == []
    clock.advance(30)
    assert len(await take(store)) == 1


async def test_a_backlog_does_not_hold_up_the_job_of_a_tick(store: Store, clock: ManualClock) -> None:
    """A job of a schedule counts as one that had to wait for its time, and is due when it is added if that has passed."""
    await add_many(store, 50)
    await created(store)
    clock.advance(61)
    await fired(store)
    clock.advance(OVERDUE)
    assert (await jobs_of(store))[0] in ids(await take(store, 2))


async def test_a_tick_has_one_job_though_its_schedule_begins_anew(store: Store, clock: ManualClock) -> None:
    """A tick whose job the store still has makes no second one."""
    await created(store)
    clock.advance(61)
    await fired(store)
    await store.delete_schedule("s", SIGN)
    clock.advance(-30)
    await created(store)
    clock.advance(30)
    assert await fired(store) == [Advanced.DONE]
    assert len(await jobs_of(store)) == 1
    clock.advance(60)
    assert await fired(store) == [Advanced.DONE]
    assert len(await jobs_of(store)) == 2


@pytest.mark.parametrize("claim", [False, True], ids=["ready", "running"])
async def test_a_tick_is_skipped_while_the_last_job_is_live(store: Store, clock: ManualClock, claim: bool) -> None:
    """While the job in `unless_live` is ready or running, `otherwise` is written and no job is added."""
    await created(store, rule_text=CAREFUL)
    clock.advance(60)
    assert await fired(store) == [Advanced.DONE]
    if claim:
        await take_one(store, lease_for=1_000)
    first = await stands(store)
    clock.advance(60)
    assert await fired(store) == [Advanced.SKIPPED]
    schedule = await stands(store)
    assert (schedule.last_job_id, schedule.last_tick) == (first.last_job_id, first.last_tick)
    assert (schedule.fired, schedule.skipped, schedule.next_tick) == (1, 1, now(clock, 60))
    assert len(await jobs_of(store)) == 1
    assert await fired(store) == []


@pytest.mark.parametrize(
    "outcome", [Done(), Dead(Failure("no")), Cancelled()], ids=lambda outcome: type(outcome).__name__.lower()
)
async def test_a_tick_is_fired_when_the_last_job_has_ended(store: Store, clock: ManualClock, outcome: Outcome) -> None:
    """While the job in `unless_live` is ready or running, `otherwise` is written and no job is added."""
    await created(store, rule_text=CAREFUL)
    clock.advance(60)
    await fired(store)
    await write(store, settle(await take_one(store), outcome))
    clock.advance(60)
    assert await fired(store) == [Advanced.DONE]
    assert len(await jobs_of(store)) == 2


async def test_a_job_that_waits_for_another_attempt_is_live(store: Store, clock: ManualClock) -> None:
    """While the job in `unless_live` is ready or running, `otherwise` is written and no job is added."""
    await created(store, rule_text=CAREFUL)
    clock.advance(60)
    await fired(store)
    await write(store, settle(await take_one(store), Failed(Failure("no"), after=1_000)))
    clock.advance(60)
    assert await fired(store) == [Advanced.SKIPPED]


async def test_a_last_job_that_was_removed_is_not_live(store: Store, clock: ManualClock) -> None:
    """While the job in `unless_live` is ready or running, `otherwise` is written and no job is added."""
    await created(store, rule_text=CAREFUL)
    clock.advance(60)
    await fired(store)
    claimed = await take_one(store)
    await write(store, settle(claimed, Done(), keep=False))
    assert await store.get(claimed.id) is None
    clock.advance(60)
    assert await fired(store) == [Advanced.DONE]


async def test_a_person_changes_a_schedule(store: Store, clock: ManualClock) -> None:
    """
    As `fire`, for a person who creates, edits, pauses or otherwise changes one schedule. It leaves an audit record that names
    the action.
    """
    advance = create(a_definition(), clock.now())
    assert await store.put_schedule(advance, "create_schedule", Signature("ann", "for the report")) is Advanced.DONE
    assert await stands(store) == advance.schedule
    ran = run_now(advance.schedule, clock.now())
    assert await store.put_schedule(ran, "run_schedule", SIGN) is Advanced.DONE
    [job] = await take(store)
    assert (job.schedule, job.tick) == ("s", None)
    second, first = await store.audit()
    assert (first.action, first.target, first.by, first.reason) == ("create_schedule", "schedule:s", "ann", "for the report")
    assert (second.action, second.count, second.at) == ("run_schedule", 1, now(clock))


async def test_a_change_that_makes_no_job_says_so_in_its_record(store: Store, clock: ManualClock) -> None:
    """It leaves an audit record that names the action."""
    await created(store, rule_text=CAREFUL)
    clock.advance(60)
    await fired(store)
    clock.advance(60)
    change = pause(await stands(store), clock.now(), "ann", None)
    assert len(change.jobs) == 1
    assert await store.put_schedule(change, "pause_schedule", SIGN) is Advanced.SKIPPED
    [record] = await store.audit()
    assert (record.action, record.count) == ("pause_schedule", 0)


async def test_a_change_that_came_too_late_leaves_no_record(store: Store, clock: ManualClock) -> None:
    """As `fire`, for a person who creates, edits, pauses or otherwise changes one schedule."""
    await created(store)
    edit = redefine(await stands(store), a_definition(rule_text=CAREFUL), clock.now())
    assert await store.put_schedule(edit, "edit_schedule", SIGN) is Advanced.DONE
    assert await store.put_schedule(edit, "edit_schedule", SIGN) is Advanced.REPEATED
    assert await store.put_schedule(create(a_definition(), clock.now()), "create_schedule", SIGN) is Advanced.STALE
    assert [record.action for record in await store.audit()] == ["edit_schedule"]


async def test_a_schedule_is_removed_and_its_jobs_stay(store: Store, clock: ManualClock) -> None:
    """Remove a schedule; False when there is none. Its jobs stay."""
    await created(store)
    clock.advance(61)
    await fired(store)
    [job] = await jobs_of(store)
    assert await store.delete_schedule("s", SIGN) is True
    assert await store.delete_schedule("s", SIGN) is False
    assert await store.schedules() == []
    assert (await seen(store, job)).state is State.READY
    [record] = await store.audit()
    assert (record.action, record.target, record.by) == ("delete_schedule", "schedule:s", "ann")


async def test_jobs_are_found_by_their_schedule(store: Store, clock: ManualClock) -> None:
    await created(store, "a", "b")
    await store.enqueue([a_job()])
    for _ in range(3):
        clock.advance(60)
        await fired(store)
    found = (await store.find(Filter(schedule="a"))).jobs
    assert [job.tick for job in found] == [at(clock.now() - to_us(60 * back)) for back in range(3)]
    assert {job.schedule for job in found} == {"a"}
    assert (await store.find(Filter(schedule="nobody"))).jobs == []


async def test_a_paused_queue_does_not_keep_a_schedule_from_firing(store: Store, clock: ManualClock) -> None:
    """Put schedules forward and add the jobs of their ticks, each schedule together with its jobs or not at all."""
    await created(store)
    await store.pause(Target("queue", "default"), SIGN)
    clock.advance(61)
    assert await fired(store) == [Advanced.DONE]
    assert await take(store) == []


async def test_a_clock_that_was_set_back_repeats_no_tick(store: Store, clock: ManualClock) -> None:
    """The time of the store, and up to `limit` schedules that are due by it, those due for longest first."""
    await created(store)
    clock.advance(60)
    await fired(store)
    clock.advance(-3_600)
    assert await fired(store) == []
    assert (await store.due_schedules(1)).next_in == 3_660.0
    clock.advance(3_600)
    assert await fired(store) == []
    clock.advance(60)
    assert await fired(store) == [Advanced.DONE]
    assert len(await jobs_of(store)) == 2
