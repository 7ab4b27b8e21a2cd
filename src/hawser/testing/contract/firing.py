"""Fire: a tick makes one job in every case; while the last one is live, perhaps none."""

from __future__ import annotations

import asyncio

import pytest

from hawser.limit import Limit
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Outcome
from hawser.policy import QueuePolicy
from hawser.schedule.change import pause
from hawser.schedule.rule import Every, text_of
from hawser.schedule.schedule import create, plan
from hawser.store import OVERDUE, Store, Target
from hawser.store.schedules import Advanced
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, add_many, ids, now, seen, settle, take, take_one, write
from hawser.testing.contract.scheduling import CAREFUL, a_definition, created, fired, jobs_of, stands


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
    """The jobs are added as by enqueue, also beyond the depth limit."""
    await created(store)
    await store.set_limit(Target("queue", "default"), Limit(max_depth=0), SIGN)
    clock.advance(61)
    assert await fired(store) == [Advanced.DONE]
    assert (await store.stats("default")).ready == 1


async def test_jobs_of_ticks_are_counted_and_give_a_wake(store: Store, clock: ManualClock) -> None:
    """The jobs are added as by enqueue, also beyond the depth limit."""
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
    """The jobs are added as by enqueue, also beyond the depth limit."""
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
