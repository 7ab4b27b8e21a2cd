"""Stats and queues: the figures."""

from __future__ import annotations

from hawser.job import FOREVER, State
from hawser.store import DUE_COUNTED, QueueStats, Retention, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.cost import fastest
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    add_many,
    dead,
    done,
    failed,
    in_state,
    lose,
    now,
    released,
    running,
    snoozed,
    take,
    take_one,
    write,
)


def counts(figures: QueueStats) -> dict[str, int]:
    names = ("ready", "scheduled", "retrying", "held", "running", "done", "dead", "cancelled")
    return {name: getattr(figures, name) for name in names if getattr(figures, name)}


async def counted(store: Store, queue: str = "default") -> dict[str, int]:
    return counts(await store.stats(queue))


async def test_every_job_is_counted_where_it_stands(store: Store) -> None:
    """The figures of one queue, or of all."""
    await add_many(store, 5)
    one, two, three, four, five = await take(store)
    await write(store, failed(one), failed(two, after=100), done(three), dead(four))
    assert await counted(store) == {"retrying": 2, "running": 1, "done": 1, "dead": 1}
    await add_many(store, 2)
    await add_many(store, 3, delay=100)
    cancelled = await add(store)
    await store.cancel([cancelled], SIGN)
    assert await counted(store) == {
        "ready": 2,
        "scheduled": 3,
        "retrying": 2,
        "running": 1,
        "done": 1,
        "dead": 1,
        "cancelled": 1,
    }
    await write(store, done(five))
    assert (await store.stats("default")).running == 0


async def test_waiting_jobs_become_ready_as_time_passes(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    await add(store, delay=10)
    await add(store, delay=20)
    await write(store, failed(await running(store), after=15))
    assert await counted(store) == {"scheduled": 2, "retrying": 1}
    clock.advance(10)
    assert await counted(store) == {"ready": 1, "scheduled": 1, "retrying": 1}
    clock.advance(10)
    assert await counted(store) == {"ready": 2, "retrying": 1}


async def test_a_job_handed_back_was_never_tried(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    claimed = await running(store)
    await write(store, released(claimed))
    assert await counted(store) == {"ready": 1}
    await write(store, snoozed(await take_one(store), after=30))
    assert await counted(store) == {"scheduled": 1}
    clock.advance(30)
    assert await counted(store) == {"ready": 1}
    await take_one(store)
    await lose(store, clock)
    assert await counted(store) == {"retrying": 1}


async def test_operators_actions_are_counted(store: Store) -> None:
    """The figures of one queue, or of all."""
    first, second = await in_state(store, State.DEAD), await in_state(store, State.DEAD)
    third = await in_state(store, State.DEAD)
    assert await counted(store) == {"dead": 3}
    await store.requeue([first], SIGN)
    await store.discard([second], SIGN)
    await store.replace(third, a_job(delay=5), SIGN)
    assert await counted(store) == {"ready": 1, "scheduled": 1, "cancelled": 2}


async def test_removed_jobs_are_not_counted(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    await in_state(store, State.DONE)
    await in_state(store, State.DEAD)
    await write(store, done(await running(store), keep=False))
    clock.advance(8 * 86_400)
    await store.prune(Retention(), {}, 10)
    assert await counted(store) == {"dead": 1}


async def test_the_figures_of_all_queues_add_up(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    for state in (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED, State.READY):
        await in_state(store, state, queue="a")
    clock.advance(5)
    await add_many(store, 2, queue="b", delay=60)
    await add(store, queue="c")
    assert await counted(store, "a") == {"ready": 1, "running": 1, "done": 1, "dead": 1, "cancelled": 1}
    every = await store.stats()
    assert counts(every) == {"ready": 2, "scheduled": 2, "running": 1, "done": 1, "dead": 1, "cancelled": 1}
    assert every.oldest_age_s == (await store.stats("a")).oldest_age_s == 5
    assert await counted(store, "unknown") == {}


async def test_the_figures_outlive_the_store(store: Store, reopen: Opener) -> None:
    """The figures of one queue, or of all."""
    await in_state(store, State.DEAD)
    await in_state(store, State.DONE)
    await add(store)
    before = await counted(store)
    store = await reopen()
    assert await counted(store) == before


async def test_the_oldest_is_the_one_due_for_longest(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""

    async def age() -> float:
        return (await store.stats("default")).oldest_age_s

    assert await age() == 0
    await add(store, delay=60)
    clock.advance(30)
    assert await age() == 0
    await add(store)
    clock.advance(20)
    assert await age() == 20
    await add(store, priority=9)
    clock.advance(20)
    assert await age() == 40
    await write(store, *(done(claimed) for claimed in await take(store, 2)))
    assert await age() == 10
    await take(store)
    assert await age() == 0


async def test_a_removed_job_is_not_the_oldest(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    first = await add(store)
    clock.advance(20)
    await add(store)
    clock.advance(10)
    await store.cancel([first], SIGN)
    await store.prune(Retention(cancelled=0), {}, 10)
    assert (await store.stats("default")).oldest_age_s == 10
    assert [lane.oldest_age_s for lane in await store.lanes()] == [10]
    await add(store, id=first)  # the id is free again, and this job waits from now on
    clock.advance(1)
    assert (await store.stats("default")).oldest_age_s == 11


async def test_the_oldest_of_a_retry_counts_from_its_own_time(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    await write(store, failed(await running(store), after=10))
    clock.advance(5)
    assert (await store.stats("default")).oldest_age_s == 0
    clock.advance(8)
    assert (await store.stats("default")).oldest_age_s == 3


async def test_rates_are_per_second_over_five_minutes(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    await add(store, queue="old")
    clock.advance(600)
    await add_many(store, 120)
    claims = await take(store, 90)
    await write(store, *(done(claimed) for claimed in claims[:60]), *(failed(claimed) for claimed in claims[60:]))
    for queue in ("default", None):
        rates = (await store.stats(queue)).rates
        for event, count in {"enqueued": 120, "claimed": 90, "done": 60, "failed": 30, "dead": 0}.items():
            assert count / 360 <= rates[event] <= count / 240
    assert (await store.stats("other")).rates.get("enqueued", 0) == 0
    clock.advance(600)
    assert set((await store.stats()).rates.values()) <= {0.0}


async def test_rates_of_a_young_store_are_over_the_time_that_there_is(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    clock.advance(60 - now(clock).second)
    await add_many(store, 120)
    for seconds, rate in ((30, 2.0), (60, 1.333), (60, 0.8), (120, 0.444), (60, 0.0)):
        clock.advance(seconds)
        await add(store, queue="later")
        found = await store.stats("default"), (await store.queues())["default"]
        assert [each.rates.get("enqueued", 0.0) for each in found] == [rate, rate]
    clock.advance(7200)
    await add_many(store, 30)
    assert (await store.stats()).rates["enqueued"] == 0.5, "idle for so long, it begins anew"


async def test_dead_jobs_have_a_rate(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    await add(store, queue="old")
    clock.advance(600)
    await add_many(store, 60, max_attempts=1)
    claims = await take(store)
    await write(store, *(failed(claimed) for claimed in claims[:30]), *(dead(claimed) for claimed in claims[30:]))
    assert 60 / 360 <= (await store.stats()).rates["dead"] <= 60 / 240


async def test_attempts_are_told_of_99_in_100(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    assert (await store.stats("default")).attempts_p99 == 0
    await add_many(store, 97)
    await write(store, *(done(claimed) for claimed in await take(store)))
    assert (await store.stats("default")).attempts_p99 == 1
    for _ in range(3):
        await add(store, max_attempts=3)
        for _ in range(3):
            await write(store, failed(await take_one(store)))
        assert (await store.stats("default")).attempts_p99 == 3
    await add_many(store, 200)
    await write(store, *(done(claimed) for claimed in await take(store, 200)))
    assert (await store.stats("default")).attempts_p99 == 1
    clock.advance(2 * 3600)
    assert (await store.stats("default")).attempts_p99 == 0


async def test_what_could_be_claimed_now_is_due(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""
    await write(store, failed(await running(store), after=10), snoozed(await running(store), after=20))
    await add(store)
    await add(store, delay=30)
    due = []
    for _ in range(4):
        due.append((await store.stats("default")).due)
        clock.advance(10)
    assert due == [1, 2, 3, 4]
    await take(store, 3)
    assert (await store.stats()).due == 1


async def test_held_keys_are_counted(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all."""

    async def held() -> list[int]:
        return [(await store.stats(queue)).keys for queue in ("default", "other", None)]

    assert await held() == [0, 0, 0]
    live = await running(store, key="a")
    window = await running(store, key="b", key_ttl=60, lease_for=1_000)
    await add(store, key="c", key_ttl=FOREVER, queue="other")
    await store.enqueue([a_job(key="a"), a_job(key="b"), a_job(key="c", queue="other")])
    assert await held() == [2, 1, 3]
    await write(store, done(live))
    assert await held() == [1, 1, 2]
    clock.advance(61)
    assert await held() == [1, 1, 2]
    await write(store, done(window))
    assert await held() == [0, 1, 1]
    await store.prune(Retention(), {}, 100)
    assert await held() == [0, 1, 1]


async def test_attempts_of_the_rarest_are_left_out(store: Store) -> None:
    """The figures of one queue, or of all."""
    for attempts in (3, 2):
        await add(store)
        for _ in range(attempts - 1):
            await write(store, failed(await take_one(store)))
        await write(store, done(await take_one(store)))
    await add_many(store, 98)
    await write(store, *(done(claimed) for claimed in await take(store)))
    assert (await store.stats("default")).attempts_p99 == 2


async def test_a_paused_queue_says_so(store: Store) -> None:
    """The figures of one queue, or of all."""
    await add(store)
    assert not (await store.stats("default")).paused
    await store.pause(Target("queue", "default"), SIGN)
    assert (await store.stats("default")).paused
    assert not (await store.stats("other")).paused
    await store.resume(Target("queue", "default"), SIGN)
    assert not (await store.stats("default")).paused


async def test_the_figures_add_up_when_they_are_not_exact(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all. Its cost does not grow with the number of jobs."""
    for _ in range(3):
        await add_many(store, 3_500, delay=1)
        await add_many(store, 3_500, delay=1_000)
    clock.advance(2)
    figures = await store.stats("default")
    assert figures.ready + figures.scheduled + figures.retrying == 21_000
    assert DUE_COUNTED <= figures.ready <= 10_500
    assert DUE_COUNTED <= figures.due <= 10_500
    assert not figures.exact or (figures.ready, figures.due) == (10_500, 10_500)


async def test_the_cost_of_the_figures_does_not_grow_with_the_jobs(store: Store, clock: ManualClock) -> None:
    """Its cost does not grow with the number of jobs."""

    async def fill(batches: int) -> None:
        for _ in range(batches):
            await add_many(store, 500)
            await add_many(store, 1_500, delay=1)
            await add_many(store, 1_500, delay=1_000)

    async def figures() -> None:
        await store.stats("default")

    await fill(7)
    clock.advance(2)
    few = await fastest(figures)
    await fill(14)
    clock.advance(2)
    bound = 2 * few + 0.002
    assert await fastest(figures, bound) < bound
