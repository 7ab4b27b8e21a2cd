"""Schedules: what stands, what is due, changing and removing."""

from __future__ import annotations

from hawser.clock import at, to_us
from hawser.job import State
from hawser.schedule.change import pause, redefine, run_now
from hawser.schedule.rule import Every, text_of
from hawser.schedule.schedule import create
from hawser.store import Actor, Filter, Store
from hawser.store.schedules import Advanced
from hawser.testing.clock import ManualClock
from hawser.testing.contract.cost import fastest
from hawser.testing.contract.making import SIGN, Opener, a_job, now, seen, take
from hawser.testing.contract.scheduling import CAREFUL, a_definition, created, fired, jobs_of, stands


async def test_schedules_are_given_by_name(store: Store) -> None:
    """The schedules with these names, or all, in order of their names; an unknown name is passed over."""
    assert await store.schedules() == []
    await created(store, "b", "c", "a")
    assert [schedule.name for schedule in await store.schedules()] == ["a", "b", "c"]
    assert [schedule.name for schedule in await store.schedules(["c", "nobody", "a", "a"])] == ["a", "c"]
    assert await store.schedules([]) == []


async def test_schedules_are_given_in_pages(store: Store) -> None:
    """No more than `limit` of them, from behind the name `after`."""
    await created(store, "b", "c", "B", "a", "d")
    assert [schedule.name for schedule in await store.schedules(limit=2)] == ["B", "a"]
    assert [schedule.name for schedule in await store.schedules(after="a", limit=2)] == ["b", "c"]
    assert [schedule.name for schedule in await store.schedules(after="bb")] == ["c", "d"]
    assert [schedule.name for schedule in await store.schedules(["d", "a", "c"], "a", 1)] == ["c"]
    assert await store.schedules(after="d") == []


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


async def test_the_next_schedules_stand_in_the_order_of_their_times(store: Store, clock: ManualClock) -> None:
    """Up to `limit` schedules that a scheduler has to look at some time, the earliest first."""
    assert await store.next_schedules(5) == []
    await created(store, "a", "paused", rule_text=text_of(Every(hours=3)))
    await created(store, "b", "c", rule_text=text_of(Every(hours=2)))
    [standing] = await store.schedules(["paused"])
    await store.fire([pause(standing, clock.now(), "ann", None)])
    assert [each.name for each in await store.next_schedules(5)] == ["b", "c", "a"]
    assert [each.name for each in await store.next_schedules(2)] == ["b", "c"]
    clock.advance(2 * 3600)
    await fired(store)
    assert await store.next_schedules(1) == await store.schedules(["a"])


async def test_the_cost_of_what_is_due_does_not_grow_with_the_schedules(store: Store, clock: ManualClock) -> None:
    """Its cost does not grow with the number of schedules."""
    await created(store, "first")

    async def fill(start: int, count: int) -> None:
        rule = text_of(Every(hours=5))
        many = [create(a_definition(f"s{number}", rule), clock.now()) for number in range(start, start + count)]
        assert set(await store.fire(many)) == {Advanced.DONE}

    async def look() -> None:
        due = await store.due_schedules(100)
        assert [schedule.name for schedule in due.schedules] == ["first"]

    await fill(0, 500)
    clock.advance(61)
    few = await fastest(look)
    await fill(500, 4_500)
    bound = 2 * few + 0.002
    assert await fastest(look, bound) < bound


async def test_a_person_changes_a_schedule(store: Store, clock: ManualClock) -> None:
    """
    As `fire`, for a person who creates, edits, pauses or otherwise changes one schedule. It leaves an audit record that names
    the action.
    """
    advance = create(a_definition(), clock.now())
    assert await store.put_schedule(advance, "create_schedule", Actor("ann", "for the report")) is Advanced.DONE
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
