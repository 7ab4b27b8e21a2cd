"""How jobs ended, for those who wait for results."""

from __future__ import annotations

from hawser.job import State
from hawser.outcome import Dead, Failure
from hawser.store import GONE, Actor, JobEnd, Store
from hawser.testing.contract.making import SIGN, add, dead, done, failed, in_state, running, settle, take_one, write
from hawser.value.ids import new_id


async def test_what_jobs_returned_and_why_they_failed_is_told_in_order(store: Store) -> None:
    """How these jobs ended, in order: with what they returned, or with the last error or reason."""
    answered = await running(store)
    await write(store, done(answered, result=b'{"a":1}'))
    silent = await in_state(store, State.DONE)
    tried = await running(store, max_attempts=2)
    await write(store, failed(tried, error="ValueError: first"))
    await write(store, failed(await take_one(store), error="ValueError: last"))
    dropped = await running(store)
    await write(store, dead(dropped, error="Drop: gone"))
    unwanted = await add(store)
    await store.cancel([unwanted], Actor(by="ann", reason="not wanted"))
    assert await store.ended([unwanted, dropped.id, tried.id, silent, answered.id]) == [
        JobEnd(State.CANCELLED, "work", "not wanted"),
        JobEnd(State.DEAD, "work", "Drop: gone"),
        JobEnd(State.DEAD, "work", "ValueError: last"),
        JobEnd(State.DONE, "work"),
        JobEnd(State.DONE, "work", None, b'{"a":1}'),
    ]
    assert await store.ended([]) == []


async def test_a_live_job_has_not_ended(store: Store) -> None:
    """None stands for a job that is live."""
    waiting = await add(store, queue="other")
    claimed = await running(store, max_attempts=3)
    assert await store.ended([waiting, claimed.id]) == [None, None]
    await write(store, failed(claimed, after=9.0))
    assert await store.ended([claimed.id]) == [None]
    dead_once = await in_state(store, State.DEAD)
    await store.requeue([dead_once], SIGN)
    assert await store.ended([dead_once]) == [None]


async def test_a_job_that_is_not_there_has_no_state(store: Store) -> None:
    """A job that the store does not have has no state."""
    removed = await running(store)
    await write(store, done(removed, keep=False))
    assert await store.ended([new_id(), removed.id, "no id at all"]) == [GONE, GONE, GONE]


async def test_a_discarded_job_ended_with_the_reason_for_that(store: Store) -> None:
    claimed = await running(store)
    await write(store, settle(claimed, Dead(Failure("ValueError: no"))))
    await store.discard([claimed.id], Actor(by="ann", reason="known"))
    assert await store.ended([claimed.id]) == [JobEnd(State.CANCELLED, "work", "known")]
