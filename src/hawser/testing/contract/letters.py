"""Dead letters: dead jobs in brief, by pages that are bounded by what is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from hawser.job import State
from hawser.store import ERROR_TOLD, DeadLetter, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    add,
    add_many,
    dead,
    failed,
    ids,
    in_state,
    lose,
    now,
    running,
    take,
    take_one,
    write,
)


async def letters(store: Store, limit: int, queue: str | None = None, task: str | None = None) -> tuple[list[DeadLetter], int]:
    """All that are told of, and how many jobs were looked at."""
    found: list[DeadLetter] = []
    looked_at, after = 0, None
    for _ in range(10_000):
        page = await store.dead_letters(queue, task, after, limit)
        assert len(page.letters) <= page.looked_at <= limit
        found += page.letters
        looked_at += page.looked_at
        if page.next is None:
            return found, looked_at
        after = page.next
    pytest.fail("the pages do not end")


async def die(store: Store, error: str, **fields: Any) -> str:
    claimed = await running(store, **fields)
    await write(store, dead(claimed, error))
    return claimed.id


async def test_a_dead_letter_is_the_job_in_brief(store: Store, clock: ManualClock) -> None:
    """The dead jobs of a queue and task in brief, newest first, from behind the cursor `after`."""
    job = await add(store, task="t", queue="q", max_attempts=2)
    await write(store, failed(await take_one(store, "q"), error="the first"))
    await write(store, failed(await take_one(store, "q"), error="the last"))
    at = now(clock)
    clock.advance(5)
    page = await store.dead_letters()
    assert (page.letters, page.looked_at, page.next) == ([DeadLetter(job, "t", "q", "the last", at)], 1, None)


async def test_only_dead_jobs_are_told_of(store: Store) -> None:
    """The dead jobs of a queue and task in brief, newest first, from behind the cursor `after`."""
    made = {state: await in_state(store, state, queue=f"is-{state}") for state in State}
    again, gone = await die(store, "no", queue="again"), await die(store, "no", queue="gone")
    await store.requeue([again], SIGN)
    await store.discard([gone], SIGN)
    found, looked_at = await letters(store, 10)
    assert (ids(found), looked_at) == ([made[State.DEAD]], 1)


async def test_a_lost_run_is_told_of_by_its_error(store: Store, clock: ManualClock) -> None:
    """The dead jobs of a queue and task in brief, newest first, from behind the cursor `after`."""
    await running(store, max_attempts=1)
    await lose(store, clock)
    [letter] = (await store.dead_letters()).letters
    assert letter.error is not None
    assert letter.error.startswith("the lease ran out")


@pytest.mark.parametrize("error", ["x" * 10_000, "ü" * 10_000, " \t\r\n" * 500 + "y" * 9_000, "short", "two\nlines"])
async def test_an_error_is_told_from_where_it_begins(store: Store, error: str) -> None:
    """The dead jobs of a queue and task in brief, newest first, from behind the cursor `after`."""
    await die(store, error)
    [letter] = (await store.dead_letters()).letters
    assert letter.error == error.lstrip()[:ERROR_TOLD]


async def test_the_newest_dead_letters_come_first(store: Store, clock: ManualClock) -> None:
    """The dead jobs of a queue and task in brief, newest first, from behind the cursor `after`."""
    made = []
    for n in range(7):
        made.append(await die(store, f"{n}"))
        clock.advance(1)
    for limit in (1, 3, 7, 8):
        found, looked_at = await letters(store, limit)
        assert (ids(found), looked_at) == (made[::-1], 7)
    assert ids((await store.dead_letters(None, None, made[3], 2)).letters) == [made[2], made[1]]


async def test_dead_letters_are_told_of_one_queue_and_task(store: Store) -> None:
    """The dead jobs of a queue and task in brief, newest first, from behind the cursor `after`."""
    made = {(queue, task): await die(store, "no", queue=queue, task=task) for queue in ("a", "b") for task in ("s", "t")}
    for queue in (None, "a", "b", "c"):
        for task in (None, "s", "t", "u"):
            found, _ = await letters(store, 3, queue, task)
            assert set(ids(found)) == {id for (q, t), id in made.items() if queue in (None, q) and task in (None, t)}


async def test_what_is_looked_at_is_bounded_and_not_what_is_found(store: Store) -> None:
    """At most `limit` dead jobs are looked at, of any queue and task."""
    wanted = await die(store, "no", queue="rare")
    await add_many(store, 9, max_attempts=1)
    await write(store, *(dead(claimed) for claimed in await take(store)))
    page = await store.dead_letters("rare", None, None, 4)
    assert (page.letters, page.looked_at) == ([], 4)
    assert page.next is not None
    page = await store.dead_letters("rare", None, page.next, 5)
    assert (page.letters, page.looked_at) == ([], 5)
    page = await store.dead_letters("rare", None, page.next, 5)
    assert (ids(page.letters), page.looked_at, page.next) == ([wanted], 1, None)
    found, looked_at = await letters(store, 2, "nobody")
    assert (found, looked_at) == ([], 10)


async def test_dead_letters_are_looked_at_once_while_others_come_and_go(store: Store, clock: ManualClock) -> None:
    """Following `next` to its end looks at every job that is dead throughout, once."""
    made = []
    for _ in range(9):
        made.append(await die(store, "no"))
        clock.advance(1)
    seen: list[str] = []
    after: str | None = None
    for gone in made[::4]:
        page = await store.dead_letters(None, None, after, 3)
        seen += ids(page.letters)
        after = page.next
        await store.discard([gone], SIGN)
        await die(store, "new")
    assert sorted({*seen} & {*made[1::4], *made[2::4], *made[3::4]}) == sorted({*made} - {*made[::4]})
    assert len(seen) == len(set(seen))
