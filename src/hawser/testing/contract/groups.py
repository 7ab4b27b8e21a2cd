"""Groups of dead jobs: by task and kind of error, counted exactly while jobs are retried, discarded and pruned."""

from __future__ import annotations

from typing import Any, Final

from hawser.job import State
from hawser.outcome import Done
from hawser.store import DeadGroup, Filter, Retention, Settlement, Share, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.cost import fastest
from hawser.testing.contract.making import (
    SIGN,
    a_job,
    add,
    dead,
    failed,
    ids,
    in_state,
    lose,
    now,
    running,
    take_one,
    write,
)
from hawser.value.fingerprint import Group, fingerprint

JOBS_WORTH_COUNTING: Final = 2_000
"""Jobs whose reading takes longer than the call does without it, on every store."""


async def die(store: Store, error: str = "ValueError: no", **fields: Any) -> str:
    claimed = await running(store, **fields)
    await write(store, dead(claimed, error))
    return claimed.id


async def counts(store: Store, queue: str | None = None, task: str | None = None) -> list[tuple[str, int]]:
    """The groups by the name of their task, with their sizes."""
    found = await store.dead_groups(queue, task)
    assert (found.ungrouped, found.more) == (0, False)
    return [(group.task, group.count) for group in found.groups]


async def test_jobs_of_one_cause_are_one_group(store: Store, clock: ManualClock) -> None:
    """The dead jobs of a queue and task, by task and fingerprint of their last error, the largest group first."""
    began = now(clock)
    made = []
    for n in range(3):
        made.append(await die(store, f"ValueError: no user {n} called 'ann{n}'", task="t", queue="q"))
        clock.advance(10)
    await die(store, "TimeoutError: down", task="t", queue="q")
    await die(store, "TimeoutError: down", task="s")
    first, *rest = (await store.dead_groups()).groups
    assert isinstance(first, DeadGroup)
    assert (first.task, first.fingerprint, first.count) == ("t", fingerprint("ValueError: no user 7 called 'x'"), 3)
    assert (first.first_at, first.sample.id, first.sample.finished_at) == (began, made[2], now(clock, -10))
    assert (first.sample.error, first.sample.task, first.sample.queue) == ("ValueError: no user 2 called 'ann2'", "t", "q")
    assert [(group.task, group.count) for group in rest] == [("s", 1), ("t", 1)]
    assert rest[0].fingerprint == rest[1].fingerprint == fingerprint("TimeoutError: down")


async def test_groups_of_one_queue_and_task(store: Store) -> None:
    """The dead jobs of a queue and task, by task and fingerprint of their last error, the largest group first."""
    for queue, task, n in (("a", "s", 1), ("b", "s", 2), ("b", "t", 3)):
        for _ in range(n):
            last = await die(store, queue=queue, task=task)
    assert await counts(store) == [("s", 3), ("t", 3)]
    assert await counts(store, "a") == [("s", 1)]
    assert await counts(store, "b") == [("t", 3), ("s", 2)]
    assert await counts(store, None, "s") == [("s", 3)]
    assert await counts(store, "a", "t") == await counts(store, "none") == []
    [group] = (await store.dead_groups("b", "t")).groups
    assert group.sample.id == last
    one = await store.dead_groups(limit=1)
    assert ([group.task for group in one.groups], one.more) == (["s"], True)


async def test_a_lost_run_has_a_group(store: Store, clock: ManualClock) -> None:
    """The dead jobs of a queue and task, by task and fingerprint of their last error, the largest group first."""
    await running(store, max_attempts=1, task="t")
    await lose(store, clock)
    assert await counts(store) == [("t", 1)]
    claimed = await running(store, max_attempts=2, task="u")
    await write(store, failed(claimed, error="the first"))
    await write(store, failed(await take_one(store), error="the last"))
    [group] = (await store.dead_groups(None, "u")).groups
    assert group.fingerprint == fingerprint("the last")


async def test_the_counts_follow_what_becomes_of_the_jobs(store: Store, clock: ManualClock) -> None:
    """The counts are exact while jobs die, are requeued, discarded, replaced and pruned."""
    made = [await die(store, task="t") for _ in range(6)]
    other = await die(store, "KeyError: 'x'", task="t")
    assert await counts(store) == [("t", 6), ("t", 1)]
    await store.requeue([made[0], made[0], other], SIGN)
    assert await counts(store) == [("t", 5)]
    await store.discard([made[1]], SIGN)
    assert await counts(store) == [("t", 4)]
    await store.replace(made[2], a_job(task="t"), SIGN)
    assert await counts(store) == [("t", 3)]
    await store.requeue([made[1]], SIGN)
    assert await counts(store) == [("t", 3)]
    for _ in range(4):
        claimed = await take_one(store)
        await write(store, dead(claimed) if claimed.id == made[0] else Settlement(claimed.id, claimed.lease, Done()))
    assert sum(count for _, count in await counts(store)) == 4
    clock.advance(100)
    await store.prune(Retention(dead=50), {}, 2)
    assert sum(count for _, count in await counts(store)) == 2
    await store.prune(Retention(dead=50), {}, 10)
    assert await counts(store) == []


async def test_only_dead_jobs_have_groups(store: Store) -> None:
    """The counts are exact while jobs die, are requeued, discarded, replaced and pruned."""
    for state in State:
        await in_state(store, state, queue=f"is-{state}", task="t")
    assert await counts(store) == [("t", 1)]


async def test_a_group_is_read_without_its_jobs(store: Store) -> None:
    """Their cost grows with the number of groups and not with the number of jobs."""

    async def die_together(count: int) -> None:
        await store.enqueue([a_job(task="t") for _ in range(count)])
        claimed = await store.claim([Share("default")], count, "w1", 60)
        await write(store, *(dead(each, "ValueError: no") for each in claimed))

    await die_together(3)
    few = await fastest(store.dead_groups)
    await die_together(JOBS_WORTH_COUNTING)
    bound = 3 * few + 0.001
    assert await fastest(store.dead_groups, bound) < bound
    [group] = (await store.dead_groups()).groups
    assert (group.count, group.task) == (3 + JOBS_WORTH_COUNTING, "t")


async def test_the_jobs_of_a_group_are_found(store: Store, clock: ManualClock) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    wanted = []
    for n in range(5):
        wanted.append(await die(store, f"ValueError: {n}", task="t", queue="a" if n else "b"))
        await die(store, f"ValueError: {n}", task="u")
        await die(store, "KeyError", task="t")
        clock.advance(1)
    group = Group("t", fingerprint("ValueError: 9"))
    assert ids((await store.find(Filter(group=group))).jobs) == wanted[::-1]
    page = await store.find(Filter(group=group, state=State.DEAD), None, 2)
    assert ids(page.jobs) == wanted[:-3:-1]
    assert ids((await store.find(Filter(group=group), page.next)).jobs) == wanted[2::-1]
    assert ids((await store.find(Filter(group=group, queue="b"))).jobs) == wanted[:1]
    assert (await store.find(Filter(group=group, state=State.READY))).jobs == []
    assert (await store.find(Filter(group=group, task="u"))).jobs == []
    assert (await store.find(Filter(group=Group("none", group.fingerprint)))).jobs == []
    await store.discard([wanted[0]], SIGN)
    await store.requeue([wanted[1]], SIGN)
    assert ids((await store.find(Filter(group=group))).jobs) == wanted[:1:-1]


async def test_nothing_is_left_to_be_grouped(store: Store) -> None:
    """Find the groups of up to `limit` dead jobs without one, and return how many jobs that were."""
    await die(store)
    await add(store)
    assert await store.group_dead(10) == 0
