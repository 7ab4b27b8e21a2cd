"""Schedulers and declarers, any number of them, on each store."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from hawser import Cron, Every, Job, StoreError
from hawser.schedule.change import pause
from hawser.schedule.rule import AnyRule, text_of
from hawser.schedule.schedule import Advance, Definition, Schedule, create
from hawser.store import Filter, Store
from hawser.store.schedules import DECLARED_FOR, Advanced, DueSchedules
from hawser.testing import ManualClock
from hawser.testing.fault import Fault
from hawser.testing.faults import FaultyStore
from hawser.upkeep.scheduler import (
    SCHEDULES_LOOK_EVERY_S,
    SCHEDULES_PER_READ,
    SCHEDULES_PER_WRITE,
    SCHEDULES_TRIED,
    SPREAD,
    STAY_BACK_S,
    Declarer,
    Scheduler,
)


def a_definition(name: str = "s", rule: AnyRule | None = None) -> Definition:
    return Definition(name=name, rule_text=text_of(rule or Every(minutes=1)), task="work")


async def jobs(store: Store, name: str | None = None) -> list[Job]:
    found: list[Job] = []
    after = None
    while True:
        page = await store.find(Filter(schedule=name), after, 1000)
        found += page.jobs
        after = page.next
        if after is None:
            return found


async def put(store: Store, clock: ManualClock, *definitions: Definition) -> None:
    await store.fire([create(definition, clock.now()) for definition in definitions])


async def standing(store: Store) -> dict[str, Schedule]:
    return {schedule.name: schedule for schedule in await store.schedules()}


# Firing.


async def test_a_scheduler_waits_for_the_next_tick(store, clock):
    scheduler = Scheduler(store)
    assert SCHEDULES_LOOK_EVERY_S <= await scheduler.turn() <= SCHEDULES_LOOK_EVERY_S + SPREAD
    await put(store, clock, a_definition())
    clock.advance(59.75)
    assert 0.25 <= await scheduler.turn() <= 0.25 + SPREAD
    clock.advance(0.25)
    assert await scheduler.turn() == 0
    assert len(await jobs(store)) == 1


async def test_more_than_a_batch_is_fired_at_once(store, clock):
    await put(store, clock, *(a_definition(f"s{number}") for number in range(2 * SCHEDULES_PER_WRITE + 7)))
    clock.advance(60)
    watched = FaultyStore(store)
    assert await Scheduler(watched).turn() == 0
    assert watched.calls["fire"] == 3
    assert len(await jobs(store)) == 2 * SCHEDULES_PER_WRITE + 7


async def test_a_scheduler_that_finds_all_fired_leaves_the_rest_to_the_other(store, clock):
    await put(store, clock, *(a_definition(f"s{number}") for number in range(2 * SCHEDULES_PER_WRITE)))
    clock.advance(60)
    slow = FaultyStore(store)

    async def meanwhile(_):
        assert await Scheduler(store).turn() == 0

    slow._sleep = meanwhile
    slow.next("fire", Fault.DELAY)
    assert 0 < await Scheduler(slow).turn() <= STAY_BACK_S
    assert slow.calls["fire"] == 1
    assert len(await jobs(store)) == 2 * SCHEDULES_PER_WRITE


class AskedStore(FaultyStore):
    """Notes how many schedules a scheduler asks for and fires; another may come before it fires."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.asked: list[int] = []
        self.fired: list[int] = []
        self.others: list[Scheduler] = []

    async def due_schedules(self, limit: int) -> DueSchedules:
        self.asked.append(limit)
        return await super().due_schedules(limit)

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        self.fired.append(len(advances))
        for other in self.others:
            await other.turn()
        return await super().fire(advances)


async def test_one_that_met_others_tries_a_few_first_and_takes_over_when_they_are_gone(store, clock):
    await put(store, clock, *(a_definition(f"s{number}") for number in range(100)))
    asking = AskedStore(store)
    asking.others = [Scheduler(store)]
    scheduler = Scheduler(asking)
    for _ in range(3):
        clock.advance(60)
        assert 0 < await scheduler.turn() <= STAY_BACK_S
        assert await scheduler.turn() > SCHEDULES_LOOK_EVERY_S, "the other has fired all"
    assert asking.asked == [SCHEDULES_PER_READ, *[SCHEDULES_TRIED] * 5]
    assert asking.fired == [100, SCHEDULES_TRIED, SCHEDULES_TRIED]
    asking.others = []
    for tick in range(4, 7):
        clock.advance(60)
        assert await scheduler.turn() == 0
        assert len(await jobs(store)) == (tick - 1) * 100 + SCHEDULES_TRIED
        assert await scheduler.turn() == 0
        assert len(await jobs(store)) == tick * 100
        assert await scheduler.turn() > 0
    asking.fired.clear()
    clock.advance(60)
    assert await scheduler.turn() == 0
    assert asking.fired == [100], "it has been alone for long enough"


async def test_a_rule_that_nobody_understands_keeps_no_other_from_firing(store, clock, caplog):
    await put(store, clock, a_definition("good"), a_definition("bad"))
    bad = (await standing(store))["bad"]
    text = bad.definition.rule_text.replace('"every"', '"moon"')
    broken = replace(bad, definition=replace(bad.definition, rule_text=text), revision=f"{bad.revision}x")
    await store.fire([Advance(schedule=broken, expect=bad.revision)])
    clock.advance(60)
    scheduler = Scheduler(store)
    assert await scheduler.turn() == 0
    assert await scheduler.turn() > 0
    assert [job.schedule for job in await jobs(store)] == ["good"]
    assert "moon" in ((await standing(store))["bad"].error or "")
    assert "schedule bad cannot be followed" in caplog.text


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST, Fault.REFUSE, Fault.DUPLICATE])
async def test_a_lost_answer_makes_no_second_job_and_loses_none(store, clock, fault):
    faulty = FaultyStore(store)
    await put(store, clock, a_definition())
    clock.advance(60)
    faulty.next("fire", fault)
    scheduler = Scheduler(faulty)
    try:
        await scheduler.turn()
    except StoreError:
        assert fault is not Fault.DUPLICATE
    await scheduler.turn()
    assert len(await jobs(store)) == 1


async def test_a_store_clock_that_is_stepped_an_hour_back_and_forth_fires_each_tick_once(store, clock):
    """No double fire, no storm."""
    schedulers = [Scheduler(store) for _ in range(3)]
    await put(store, clock, a_definition("once"), a_definition("all", Every(minutes=1, missed="all", most_missed=10)))
    most = 0

    async def go(minutes: int) -> None:
        nonlocal most
        for _ in range(minutes):
            clock.advance(60)
            before = len(await jobs(store))
            for scheduler in schedulers:
                await scheduler.turn()
            most = max(most, len(await jobs(store)) - before)

    await go(30)
    assert len(await jobs(store)) == 60
    clock.advance(-3_600)
    await go(30)
    assert len(await jobs(store)) == 60, "fired again what had been fired"
    await go(60)
    assert len(await jobs(store)) == 120
    assert most == 2, "nothing was late so far"
    clock.advance(3_600)
    await go(1)
    assert most == 1 + 10, "one for `once`, the latest ten for `all`"
    await go(5)
    made = [(job.schedule, job.tick) for job in await jobs(store)]
    assert len(made) == len(set(made)) == 120 + 11 + 10


async def test_schedules_in_several_zones_fire_when_their_walls_say_so(store, clock):
    """The clock of these tests begins at noon UTC on 1 January 2026."""
    await put(
        store, clock, *(a_definition(tz.replace("/", "."), Cron("0 9 * * *", tz=tz)) for tz in ("Asia/Tokyo", "America/New_York"))
    )
    scheduler = Scheduler(store)
    for _ in range(24 * 4):
        clock.advance(900)
        await scheduler.turn()
    assert {job.schedule: job.tick for job in await jobs(store)} == {
        "Asia.Tokyo": datetime(2026, 1, 2, 0, tzinfo=UTC),
        "America.New_York": datetime(2026, 1, 1, 14, tzinfo=UTC),
    }


# Declaring.

OLD = (a_definition("changed"), a_definition("removed"), a_definition("kept"))
NEW = (a_definition("changed", Every(minutes=5)), a_definition("added"), a_definition("kept"))


class Side:
    """A worker of some release, as far as schedules go."""

    def __init__(self, store: Store, definitions: Sequence[Definition]) -> None:
        self.declarer, self.scheduler = Declarer(store, definitions), Scheduler(store)

    async def turn(self) -> None:
        await self.declarer.turn()
        while await self.scheduler.turn() == 0:
            pass


async def test_what_code_declares_is_written_once(store, clock):
    await Side(store, OLD).turn()
    first = await standing(store)
    assert {name: each.declared for name, each in first.items()} == {"changed": True, "removed": True, "kept": True}
    await Side(store, OLD).turn()
    assert await standing(store) == first


async def test_old_and_new_side_by_side_do_not_take_turns(store, clock):
    old, new = Side(store, OLD), Side(store, NEW)
    await old.turn()
    clock.advance(10)
    await new.turn()
    agreed = {name: each.definition for name, each in (await standing(store)).items()}
    assert agreed == {each.name: each for each in (*NEW, OLD[1])}
    for turn in range(30):
        clock.advance(10)
        # Also one of the old release that starts once more.
        for side in (old, new, Side(store, OLD)) if turn % 2 else (Side(store, OLD), new, old):
            await side.turn()
            assert {name: each.definition for name, each in (await standing(store)).items()} == agreed
    made = [(job.schedule, job.tick) for job in await jobs(store)]
    assert len(made) == len(set(made))
    per = {name: sum(schedule == name for schedule, _ in made) for name in agreed}
    assert per == {"changed": 1, "removed": 5, "kept": 5, "added": 5}


async def test_a_schedule_is_retired_when_the_last_worker_that_declares_it_is_gone(store, clock):
    old, new = Side(store, OLD), Side(store, NEW)
    await old.turn()
    await new.turn()
    clock.advance(DECLARED_FOR - 1)
    await new.turn()
    assert (await standing(store))["removed"].state == "active"
    clock.advance(1)
    await new.turn()
    assert {name: each.state for name, each in (await standing(store)).items()} == {
        "changed": "active",
        "removed": "retired",
        "added": "active",
        "kept": "active",
    }
    before = len(await jobs(store, "removed"))
    clock.advance(600)
    await new.turn()
    assert len(await jobs(store, "removed")) == before


async def test_a_release_that_is_rolled_back_takes_over_when_the_other_is_gone(store, clock):
    await Side(store, OLD).turn()
    await Side(store, NEW).turn()
    clock.advance(10)
    old = Side(store, OLD)
    await old.turn()
    assert (await standing(store))["changed"].definition == NEW[0]
    clock.advance(DECLARED_FOR - 10)
    await old.turn()
    assert (await standing(store))["changed"].definition == OLD[0]
    assert (await standing(store))["added"].state == "retired"


async def test_a_release_that_comes_back_after_it_was_gone_is_the_newest(store, clock):
    new = Side(store, NEW)
    await Side(store, OLD).turn()
    await new.turn()
    for _ in range(7):
        clock.advance(10)
        await new.turn()
    await Side(store, OLD).turn()
    assert (await standing(store))["changed"].definition == OLD[0]
    await new.turn()
    assert (await standing(store))["changed"].definition == OLD[0]


async def test_a_schedule_that_is_declared_again_makes_up_for_what_it_missed(store, clock):
    other = Side(store, ())
    await Side(store, (a_definition(),)).turn()
    for _ in range(12):
        clock.advance(10)
        await other.turn()
    assert (await standing(store))["s"].state == "retired"
    made = len(await jobs(store))
    clock.advance(600)
    await Side(store, (a_definition(),)).turn()
    assert len(await jobs(store)) == made + 1
    assert (await standing(store))["s"].missed > 0


async def test_two_apps_on_one_store_leave_each_others_schedules_alone(store, clock):
    one, two = Side(store, (a_definition("one"),)), Side(store, (a_definition("two"),))
    for _ in range(20):
        await one.turn()
        await two.turn()
        clock.advance(10)
    assert {name: each.state for name, each in (await standing(store)).items()} == {"one": "active", "two": "active"}


async def test_a_pause_outlives_a_deploy(store, clock):
    await Side(store, OLD).turn()
    changed = (await standing(store))["changed"]
    await store.fire([pause(changed, clock.now(), "ann", "careful")])
    await Side(store, NEW).turn()
    after = (await standing(store))["changed"]
    assert (after.state, after.definition) == ("paused", NEW[0])


async def test_a_tick_that_is_due_at_the_moment_of_a_deploy_is_fired_once_by_the_rule_that_stood(store, clock):
    await Side(store, OLD).turn()
    clock.advance(60)
    await Declarer(store, NEW).turn()
    [job] = await jobs(store, "changed")
    assert job.tick == datetime(2026, 1, 1, 12, 1, tzinfo=UTC)
    while await Scheduler(store).turn() == 0:
        pass
    assert len(await jobs(store, "changed")) == 1


async def test_a_declarer_that_was_overtaken_writes_nothing_old(store, clock):
    """The old worker is stopped between its look at the store and its write; the new one comes meanwhile."""
    slow = FaultyStore(store)

    async def meanwhile(_):
        await Side(store, NEW).turn()

    slow._sleep = meanwhile
    slow.next("fire", Fault.DELAY)
    await store.fire([create(a_definition("changed", Every(hours=9)), clock.now(), declared=True)])
    declarer = Declarer(slow, OLD)
    assert await declarer.turn() < 1, "it was refused, and looks again soon"
    await declarer.turn()
    assert (await standing(store))["changed"].definition == NEW[0]
