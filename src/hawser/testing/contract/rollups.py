"""Rollups: what happened minute by minute, and where jobs wait."""

from __future__ import annotations

from hawser.job import State
from hawser.store import Store
from hawser.store.rollup import BUCKETS, LaneDepth, Measured
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import Opener, add, add_many, done, failed, now, take, take_one, write

BUCKET_COUNT = len(BUCKETS) + 1


def counts(*pairs: tuple[int, int]) -> tuple[int, ...]:
    """Buckets that hold so many each."""
    return tuple(dict(pairs).get(bucket, 0) for bucket in range(BUCKET_COUNT))


async def test_waiting_jobs_are_counted_by_queue_task_and_priority(store: Store, clock: ManualClock) -> None:
    """The jobs that wait, by queue, task and priority, in that order; lanes that hold none are left out."""
    assert await store.lanes() == []
    await add(store, queue="b", task="work")
    clock.advance(3)
    await add_many(store, 2, queue="a", task="work", priority=7)
    await add(store, queue="a", task="work", priority=7, delay=60)
    await add(store, queue="a", task="rest", delay=60)
    clock.advance(2)
    assert await store.lanes() == [
        LaneDepth(queue="a", task="rest", priority=5, waiting=1, oldest_age_s=0.0),
        LaneDepth(queue="a", task="work", priority=7, waiting=3, oldest_age_s=2.0),
        LaneDepth(queue="b", task="work", priority=5, waiting=1, oldest_age_s=5.0),
    ]
    await take(store, queue="b")
    assert [lane.queue for lane in await store.lanes()] == ["a", "a"]


async def test_what_waits_for_another_attempt_counts(store: Store, clock: ManualClock) -> None:
    """The jobs that wait, by queue, task and priority, in that order; lanes that hold none are left out."""
    await add(store)
    await write(store, failed(await take_one(store), after=10))
    assert [(lane.waiting, lane.oldest_age_s) for lane in await store.lanes()] == [(1, 0.0)]
    clock.advance(15)
    assert [(lane.waiting, lane.oldest_age_s) for lane in await store.lanes()] == [(1, 5.0)]


async def test_every_minute_has_its_counts(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """The last so many minutes with this one, oldest first, each with all that happened in it, to that queue and task."""
    await add_many(store, 3, queue="a")
    clock.advance(60)
    await add(store, queue="b", task="rest")
    one, two, _ = await take(store, queue="a")
    await write(store, done(one), failed(two))
    store = await reopen()
    before, this = await store.rollups(2)
    assert this.minute - before.minute == now(clock, 60) - now(clock)
    assert this.minute <= now(clock) < this.minute + (this.minute - before.minute)
    assert (before.counts["enqueued"], this.counts["enqueued"]) == (3, 1)
    assert (this.counts["claimed"], this.counts["done"], this.counts["failed"], this.counts["dead"]) == (3, 1, 1, 0)
    assert before.wait == before.run == counts()


async def test_rollups_of_one_queue_or_task(store: Store) -> None:
    """The last so many minutes with this one, oldest first, each with all that happened in it, to that queue and task."""
    await add_many(store, 3, queue="a", task="work")
    await add(store, queue="a", task="rest")
    await add(store, queue="b", task="rest")

    async def enqueued(**which: str) -> int:
        [this] = await store.rollups(1, **which)
        return this.counts["enqueued"]

    assert [await enqueued(), await enqueued(queue="a"), await enqueued(task="rest")] == [5, 4, 2]
    assert [await enqueued(queue="a", task="rest"), await enqueued(queue="none")] == [1, 0]


async def test_minutes_without_events_are_there(store: Store, clock: ManualClock) -> None:
    """The last so many minutes with this one, oldest first, each with all that happened in it, to that queue and task."""
    await add(store)
    clock.advance(600)
    rollups = await store.rollups(60)
    assert [rollup.counts["enqueued"] for rollup in rollups] == [0] * 49 + [1] + [0] * 10
    assert await store.rollups(5) == rollups[-5:]


async def test_what_was_measured_is_added_up(store: Store, clock: ManualClock, second: Opener) -> None:
    """Add what a worker has measured to this minute's rollup."""
    await store.measure([Measured("a", "work", "wait", 0, 3), Measured("a", "work", "run", BUCKET_COUNT - 1, 2)])
    other = await second()
    await other.measure([Measured("a", "work", "wait", 0, 4), Measured("b", "work", "wait", 5, 1)])
    await other.measure([])
    [this] = await store.rollups(1)
    assert (this.wait, this.run) == (counts((0, 7), (5, 1)), counts((BUCKET_COUNT - 1, 2)))
    [this] = await store.rollups(1, queue="b")
    assert (this.wait, this.run) == (counts((5, 1)), counts())
    assert set(this.counts.values()) == {0}
    clock.advance(60)
    await store.measure([Measured("a", "work", "run", 1, 1)])
    before, this = await store.rollups(2, queue="a")
    assert (before.run, this.run) == (counts((BUCKET_COUNT - 1, 2)), counts((1, 1)))


async def test_times_are_summed_by_queue_and_task(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """For how long jobs waited and ran in the last so many minutes with this one, by queue and task, in any order: the sums
    of what was measured, of all queues or of one."""
    assert await store.times(60) == []
    await store.measure([Measured("a", "work", "wait", 0, 3), Measured("a", "work", "run", BUCKET_COUNT - 1, 2)])
    clock.advance(60)
    await add(store, queue="a", task="work")
    again, other = Measured("a", "work", "wait", 0, 4), Measured("b", "work", "run", 11, 1)
    await store.measure([again, other, Measured("a", "rest", "wait", 2, 5)])
    store = await reopen()
    recent = {again, other, Measured("a", "rest", "wait", 2, 5)}
    assert set(await store.times(1)) == recent
    both = (recent - {again}) | {Measured("a", "work", "wait", 0, 7), Measured("a", "work", "run", BUCKET_COUNT - 1, 2)}
    assert set(await store.times(2)) == both
    assert set(await store.times(2, "a")) == both - {other}
    assert await store.times(2, "none") == []


async def test_events_are_counted_by_minute_queue_and_task(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    How often these events happened in each of the last so many minutes with this one, by queue and task, in any order. With
    `back` they end so many minutes before this one.
    """
    await add_many(store, 3, queue="a", task="work")
    await add(store, queue="a", task="rest", max_attempts=1, priority=9)
    this = clock.now() // 60_000_000
    clock.advance(60)
    await write(store, failed(await take_one(store, queue="a")))
    await add(store, queue="b", task="work")
    store = await reopen()

    async def counted(minutes: int, *events: str, back: int = 0) -> set[tuple[int, str, str, str, int]]:
        found = await store.event_counts(minutes, events, back)
        return {(each.minute - this, each.queue, each.task, each.event, each.count) for each in found}

    now_ = {(1, "b", "work", "enqueued", 1), (1, "a", "rest", "dead", 1)}
    assert await counted(1, "enqueued", "dead") == now_
    assert await counted(2, "enqueued", "dead") == now_ | {(0, "a", "work", "enqueued", 3), (0, "a", "rest", "enqueued", 1)}
    assert await counted(2, "dead") == {(1, "a", "rest", "dead", 1)}
    assert await counted(2) == set()
    before = {(0, "a", "work", "enqueued", 3), (0, "a", "rest", "enqueued", 1)}
    assert await counted(1, "enqueued", "dead", back=1) == await counted(60, "enqueued", "dead", back=1) == before
    assert await counted(60, "enqueued", "dead", back=2) == set()


async def test_jobs_are_counted_by_queue_task_and_state(store: Store) -> None:
    """How many jobs there are by queue, task and state, in any order; None when the store does not count them so."""
    await add_many(store, 3)
    await add(store, queue="q", task="other")
    await write(store, done(await take_one(store)))
    counted = await store.task_depths()
    if counted is None:
        return
    found = {(each.queue, each.task, each.state): each.count for each in counted}
    assert found[("q", "other", State.READY)] == 1
    assert sorted((state, count) for (queue, _, state), count in found.items() if queue == "default") == [
        ("done", 1),
        ("ready", 2),
    ]
