"""Events: the first of a name stays, for a while."""

from __future__ import annotations

import asyncio
from collections import Counter

from hawser.outcome import Held
from hawser.store import Arrival, Event, Retention, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import Opener, done, now, running, settle, take_one, write

RETENTION = Retention(done=1000.0, dead=1000.0, cancelled=1000.0)


async def test_an_event_is_there_when_emit_answers(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    Say that an event has come, durably before it returns.
    The event of that name; None when it has not come, or is kept no longer.
    """
    assert await store.event("packed:42") is None
    emitted = await store.emit("packed:42", b'{"text":"\xc3\xa9"}', 100.0)
    assert (emitted.created, emitted.at, emitted.same) == (True, now(clock), True)
    found = Event(name="packed:42", body=b'{"text":"\xc3\xa9"}', at=now(clock), until=now(clock, 100))
    assert await store.event("packed:42") == found
    store = await reopen()
    assert await store.event("packed:42") == found
    assert await store.event("packed:4") is None


async def test_the_first_event_under_a_name_stays(store: Store, clock: ManualClock) -> None:
    """
    The first event under a name stays; another one changes nothing, and the answer says when the first came, and whether it
    says the same.
    """
    first = now(clock)
    await store.emit("paid", b"1", 100.0)
    clock.advance(5)
    again = await store.emit("paid", b"1", 100.0)
    assert (again.created, again.at, again.same) == (False, first, True)
    other = await store.emit("paid", b"2", 100.0)
    assert (other.created, other.at, other.same) == (False, first, False)
    found = await store.event("paid")
    assert found is not None
    assert (found.value, found.at) == (1, first)


async def test_of_many_who_emit_at_once_one_is_first(store: Store, second: Opener) -> None:
    """
    The first event under a name stays; another one changes nothing, and the answer says when the first came, and whether it
    says the same.
    """
    handles = [store, await second(), await second()]
    answers = await asyncio.gather(*(handles[n % 3].emit("paid", b"%d" % n, 100.0) for n in range(9)))
    assert sum(answer.created for answer in answers) == 1
    [winner] = [n for n, answer in enumerate(answers) if answer.created]
    found = await store.event("paid")
    assert found is not None
    assert found.value == winner


async def test_events_are_kept_for_a_while(store: Store, clock: ManualClock) -> None:
    """
    An event is kept for `keep` seconds, and as long as a job waits for it that has not gone on yet.
    Then its name is free.
    """
    await store.emit("paid", b"1", 100.0)
    clock.advance(99)
    await store.prune(RETENTION, {}, 100)
    assert await store.event("paid") is not None
    clock.advance(1)
    await store.prune(RETENTION, {}, 100)
    assert await store.event("paid") is None
    assert (await store.emit("paid", b"2", 100.0)).created


async def test_an_event_waits_for_the_run_that_goes_on_with_it(store: Store, clock: ManualClock) -> None:
    """An event is kept for `keep` seconds, and as long as a job waits for it that has not gone on yet."""
    run = await running(store)
    await write(store, settle(run, Held("paid", event="paid")))
    await store.emit("paid", b"1", 100.0)
    clock.advance(1000)
    await store.prune(RETENTION, {}, 100)
    again = await take_one(store)
    step = await store.arrive(Arrival(id=again.id, lease=again.lease, name="paid", event="paid"))
    assert step is not None
    assert step.value == 1
    await write(store, done(again))
    await store.prune(RETENTION, {}, 100)
    assert await store.event("paid") is None


async def test_waits_that_last_are_counted(store: Store, clock: ManualClock) -> None:
    """How many waits for events last, counted up to `DUE_COUNTED`."""
    assert await store.awaiting() == 0
    one, two, three = await running(store), await running(store), await running(store)
    await write(
        store,
        settle(one, Held("paid", event="paid", timeout=None)),
        settle(two, Held("packed", event="packed", timeout=10.0)),
        settle(three, Held("packed", event="packed", timeout=None)),
    )
    assert await store.awaiting() == 3
    await store.emit("paid", b"1", 100.0)
    assert await store.awaiting() == 2
    clock.advance(11)
    await store.reclaim(10)
    assert await store.awaiting() == 1
    again = [await take_one(store), await take_one(store)]
    for run in again:
        name = "paid" if run.id == one.id else "packed"
        await store.arrive(Arrival(id=run.id, lease=run.lease, name=name, event=name))
    assert await store.awaiting() == 1
    counted = {each.event: each.count for each in await store.event_counts(5, ["came", "late", "steps"])}
    assert counted == {"came": 1, "late": 1, "steps": 2}


async def test_emitted_events_and_woken_jobs_are_counted(store: Store, clock: ManualClock) -> None:
    """
    `event_counts` has the first of each name as `emitted`, of no queue and no task, and each job that a wait let go on as
    `woken`.
    """
    one, two = await running(store), await running(store)
    await write(
        store,
        settle(one, Held("paid", event="paid", timeout=None)),
        settle(two, Held("packed", event="packed", timeout=10.0)),
    )
    for name in ("paid", "paid", "shipped"):
        await store.emit(name, b"1", 100.0)
    clock.advance(11)
    await store.reclaim(10)
    found = Counter[tuple[str, str, str]]()
    for each in await store.event_counts(5, ["emitted", "woken"]):
        found[each.event, each.queue, each.task] += each.count
    assert found == {("emitted", "", ""): 2, ("woken", one.queue, one.task): 2}
