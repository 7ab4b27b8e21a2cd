"""Find: filters, order, and pages that hold while jobs come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from hawser.job import State, Waiting
from hawser.store import MAX_PAGE, Filter, Page, Retention, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    add_many,
    dead,
    done,
    failed,
    ids,
    in_state,
    now,
    running,
    snoozed,
    take,
    take_one,
    write,
)
from hawser.value.ids import new_id


async def pages(store: Store, filter: Filter, limit: int, between: Callable[[Page], Awaitable[None]] | None = None) -> list[str]:
    """All that is visited; `between` is called with every page before the next is asked for."""
    visited: list[str] = []
    after = None
    for _ in range(10_000):
        page = await store.find(filter, after, limit)
        assert len(page.jobs) <= limit
        visited += ids(page.jobs)
        if page.next is None:
            return visited
        after = page.next
        if between is not None:
            await between(page)
    pytest.fail("the pages do not end")


async def matching(store: Store, **filter: object) -> set[str]:
    return set(await pages(store, Filter(**filter), 3))  # type: ignore[arg-type]


async def test_the_newest_come_first(store: Store, clock: ManualClock) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    jobs = []
    for _ in range(6):
        jobs.append(await add(store))
        clock.advance(1)
    await write(store, *(done(claimed) for claimed in await take(store, 2)))
    page = await store.find(Filter())
    assert (ids(page.jobs), page.next) == (jobs[::-1], None)


async def test_a_page_goes_on_behind_the_cursor(store: Store, clock: ManualClock) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    jobs = []
    for _ in range(5):
        jobs.append(await add(store))
        clock.advance(1)
    assert await pages(store, Filter(), 2) == jobs[::-1]
    assert await pages(store, Filter(), 1) == jobs[::-1]
    assert await pages(store, Filter(), 5) == jobs[::-1]


async def test_a_found_job_is_shown_as_it_is(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    claimed = await running(store, key="k", tags=["x"], body=b"[1]", worker="w7")
    await write(store, done(claimed, result=b"2"))
    [job] = (await store.find(Filter(state=State.DONE))).jobs
    whole = await store.get(claimed.id)
    assert whole is not None
    assert (job.id, job.state, job.key, job.tags, job.body) == (claimed.id, State.DONE, "k", ("x",), b"[1]")
    assert (job.result, job.enqueued_at, job.finished_at) == (2, whole.enqueued_at, whole.finished_at)


async def test_jobs_are_found_by_state(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    jobs = {state: {await in_state(store, state, queue=state) for _ in range(2)} for state in State if state != "ready"}
    jobs[State.READY] = {await add(store), await add(store, delay=60)}
    for state in State:
        assert await matching(store, state=state) == jobs[state]


async def test_ready_jobs_are_found_by_what_they_wait_for(store: Store, clock: ManualClock) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    due, later = await add(store), await add(store, delay=60)
    retried = await running(store, queue="other")
    handed_back = await running(store, queue="other")
    await write(store, failed(retried, after=30), snoozed(handed_back, after=30))
    await in_state(store, State.DONE, queue="third")
    await running(store, queue="fourth")
    assert await matching(store, waiting=Waiting.SCHEDULED) == {later, handed_back.id}
    assert await matching(store, waiting=Waiting.RETRYING) == {retried.id}
    assert await matching(store, waiting=Waiting.RETRYING, state=State.READY, queue="other") == {retried.id}
    assert await matching(store, waiting=Waiting.RETRYING, state=State.DONE) == set()
    clock.advance(61)
    assert await matching(store, waiting=Waiting.SCHEDULED) == set()
    assert await matching(store, waiting=Waiting.RETRYING) == {retried.id}
    assert await matching(store, state=State.READY) == {due, later, retried.id, handed_back.id}


async def test_jobs_are_found_by_queue_and_task(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    a = await add(store, queue="a", task="t")
    b = await in_state(store, State.DONE, queue="b", task="t")
    c = await in_state(store, State.DEAD, queue="b", task="u")
    assert await matching(store, queue="b") == {b, c}
    assert await matching(store, task="t") == {a, b}
    assert await matching(store, queue="b", task="t") == {b}
    assert await matching(store, queue="none") == set()
    assert await matching(store, task="T") == set()


async def test_jobs_are_found_by_key(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    old = await in_state(store, State.DONE, key="k")
    new = await add(store, key="k")
    other = await add(store, key="k", queue="other")
    await add(store, key="K")
    await add(store)
    assert await matching(store, key="k") == {old, new, other}
    assert await matching(store, key="k", state=State.READY, queue="default") == {new}


async def test_jobs_are_found_by_tag(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    one = await in_state(store, State.DONE, tags=["a", "b"])
    two = await add(store, tags=["b", 'q"uote', "it's", "100%"])
    three = await add(store, tags=["ab", "B", "a_b"])
    await add(store)
    assert await matching(store, tag="a") == {one}
    assert await matching(store, tag="b") == {one, two}
    for tag, job in (("ab", three), ("a_b", three), ('q"uote', two), ("it's", two), ("100%", two)):
        assert await matching(store, tag=tag) == {job}
    for tag in ("%", "_", "", "a%", '"', "quote", "[", "aXb"):
        assert await matching(store, tag=tag) == set()


async def test_jobs_are_found_by_their_indexed_arguments(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    states = (State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
    found = [await in_state(store, state, queue=state.value, index=("user_id=42", "shop=a b")) for state in states]
    last = await add(store, index=("zone=1", "shop=ü=%'", "user_id=42"), task="other")
    await add(store, index=("user_id=421",))
    await add(store, tags=["user_id=42"])
    assert await matching(store, argument="user_id=42") == {*found, last}
    assert await pages(store, Filter(argument="user_id=42"), 2) == sorted([*found, last], reverse=True)
    assert await matching(store, argument="shop=ü=%'") == {last}
    assert await matching(store, argument="user_id=42", task="other") == {last}
    assert await matching(store, argument="user_id=42", state=State.DONE) == {found[2]}
    for none in ("user_id=4", "user_id=%", "id=42", "", "user_id=", "USER_ID=42"):
        assert await matching(store, argument=none) == set()
    job = await store.get(last)
    assert job is not None
    assert job.index == ("zone=1", "shop=ü=%'", "user_id=42")


async def test_a_job_that_is_removed_is_found_by_no_argument(store: Store, clock: ManualClock) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    await in_state(store, State.DONE, index=("user_id=42",))
    await in_state(store, State.DEAD, index=("user_id=42",))
    back = await in_state(store, State.DEAD, index=("user_id=42",), queue="other")
    await store.requeue([back], SIGN)
    clock.advance(100)
    await store.prune(Retention(done=1.0, dead=1.0, cancelled=1.0), {}, 100)
    assert await matching(store, argument="user_id=42") == {back}


async def test_jobs_are_found_by_parent(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    claimed = await running(store)
    children = [a_job(), a_job(queue="other")]
    await write(store, done(claimed, *children))
    await add(store, parent_id=new_id())
    assert await matching(store, parent_id=claimed.id) == set(ids(children))
    assert await matching(store, parent_id=claimed.id, queue="other") == {children[1].id}
    assert await matching(store, parent_id=children[0].id) == set()


async def test_jobs_are_found_by_when_they_were_enqueued(store: Store, clock: ManualClock) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    jobs = []
    start = now(clock)
    for _ in range(4):
        jobs.append(await add(store, delay=1000))
        clock.advance(10)
    assert await matching(store, since=now(clock, -20)) == set(jobs[2:])
    assert await matching(store, until=now(clock, -20)) == set(jobs[:2])
    assert await matching(store, since=start, until=now(clock, -10)) == set(jobs[:3])
    assert await matching(store, since=now(clock, -20), until=now(clock, -20)) == set()


async def test_all_filters_must_hold(store: Store, clock: ManualClock) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    fields = {"queue": "q", "task": "t", "key": "k", "tags": ["x"], "parent_id": new_id()}
    wanted = await add(store, **fields)
    for field, other in (("queue", "r"), ("task", "u"), ("key", "l"), ("tags", ["y"]), ("parent_id", new_id())):
        await store.enqueue([a_job(**{**fields, "key": None, field: other})])
    every = {"queue": "q", "task": "t", "key": "k", "tag": "x", "parent_id": fields["parent_id"]}
    assert await matching(store, **every, state=State.READY, since=now(clock), until=now(clock, 1)) == {wanted}


async def test_jobs_of_one_instant_are_each_visited_once(store: Store) -> None:
    """
    Following `next` to its end visits every job that matches throughout, once, also while jobs come and go.
    """
    jobs = await add_many(store, 23)
    for limit in (1, 4, 22, 23, 24):
        visited = await pages(store, Filter(), limit)
        assert len(visited) == 23
        assert set(visited) == set(jobs)


async def test_new_jobs_between_the_pages_move_nothing(store: Store, clock: ManualClock) -> None:
    """
    Following `next` to its end visits every job that matches throughout, once, also while jobs come and go.
    """
    early = [a_job() for _ in range(10)]
    jobs = await add_many(store, 20)

    async def come(_: Page) -> None:
        clock.advance(1)
        await store.enqueue([a_job(), *([early.pop()] if early else [])])

    visited = await pages(store, Filter(), 3, come)
    assert len(visited) == len(set(visited))
    assert set(jobs) <= set(visited)


async def test_jobs_that_end_between_the_pages_are_visited_once(store: Store, clock: ManualClock) -> None:
    """
    Following `next` to its end visits every job that matches throughout, once, also while jobs come and go.
    """
    jobs = []
    for _ in range(20):
        jobs.append(await add(store))
        clock.advance(1)

    async def go(_: Page) -> None:
        one, two, three = await take(store, 3)
        await write(store, done(one), dead(two), failed(three, after=1000))

    assert await pages(store, Filter(), 3, go) == jobs[::-1]


async def test_jobs_that_come_back_between_the_pages_are_visited_once(store: Store, clock: ManualClock) -> None:
    """
    Following `next` to its end visits every job that matches throughout, once, also while jobs come and go.
    """
    jobs = []
    for _ in range(20):
        jobs.append(await in_state(store, State.DEAD))
        clock.advance(1)
    order = jobs[::2] + jobs[1::2]

    async def back(_: Page) -> None:
        await store.requeue([order.pop(), order.pop()], SIGN)

    assert await pages(store, Filter(), 3, back) == jobs[::-1]


async def test_jobs_that_match_throughout_are_visited_while_others_leave(store: Store, clock: ManualClock) -> None:
    """
    Following `next` to its end visits every job that matches throughout, once, also while jobs come and go.
    """
    stay = []
    for _ in range(12):
        stay.append(await add(store, delay=100_000))
        await add(store)
        clock.advance(1)

    async def leave(_: Page) -> None:
        await write(store, *(done(claimed) for claimed in await take(store, 2)))

    visited = await pages(store, Filter(state=State.READY), 2, leave)
    assert len(visited) == len(set(visited))
    assert [id for id in visited if id in set(stay)] == stay[::-1]


async def test_a_cursor_outlives_the_job_it_points_at(store: Store, clock: ManualClock) -> None:
    """
    Following `next` to its end visits every job that matches throughout, once, also while jobs come and go.
    """
    jobs = []
    for number in range(12):
        jobs.append(await add(store, task=f"t{number}"))
        clock.advance(1)
        await write(store, done(await take_one(store)))
    removed: list[str] = []

    async def remove(page: Page) -> None:
        clock.advance(10)
        gone = {job.task: Retention(done=0) for job in page.jobs}
        removed.extend(ids(page.jobs))
        assert await store.prune(Retention(), gone, 100) == len(gone)

    assert await pages(store, Filter(state=State.DONE), 3, remove) == jobs[::-1]
    assert [await store.get(id) for id in removed] == [None] * len(removed)


async def test_a_cursor_outlives_the_store_that_gave_it(store: Store, reopen: Opener) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    jobs = await add_many(store, 4)
    first = await store.find(Filter(), limit=2)
    store = await reopen()
    second = await store.find(Filter(), first.next, limit=2)
    assert {*ids(first.jobs), *ids(second.jobs)} == set(jobs)


async def test_few_matches_among_many_are_all_found(store: Store, clock: ManualClock) -> None:
    """A page may hold fewer jobs than asked for and still have a `next`."""
    wanted = []
    for _ in range(4):
        await add_many(store, 700, tags=["hay"])
        wanted.append(await add(store, tags=["needle"]))
        clock.advance(1)
    assert await pages(store, Filter(tag="needle"), 3) == wanted[::-1]
    assert await pages(store, Filter(tag="none"), 3) == []


async def test_the_largest_page_goes_on_too(store: Store) -> None:
    """A page may hold fewer jobs than asked for and still have a `next`."""
    jobs = await add_many(store, MAX_PAGE + 5)
    assert set(await pages(store, Filter(), MAX_PAGE)) == set(jobs)


async def test_a_search_that_finds_nothing_says_how_much_it_looked_at(store: Store) -> None:
    """A page that is not full says how many jobs were looked at for it."""
    jobs = await add_many(store, 30, tags=["hay"])
    for after, most in ((None, 30), (sorted(jobs)[10], 10)):
        found = await store.find(Filter(tag="none"), after)
        assert (found.jobs, found.next, found.searched in {0, most}) == ([], None, True)  # 0: an index has the answer
    found = await store.find(Filter(queue="none"))
    assert (found.jobs, found.next, found.searched <= 30) == ([], None, True)


async def test_an_empty_store_has_one_empty_page(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    assert await store.find(Filter()) == Page([], None)
