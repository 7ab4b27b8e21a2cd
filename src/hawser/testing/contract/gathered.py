"""Jobs that wait in the middle of their handlers for jobs of their own."""

from __future__ import annotations

from typing import Any

import pytest

from hawser.job import Claimed, NewJob, State
from hawser.outcome import Held
from hawser.store import Share, Store, Waits
from hawser.testing.contract.making import (
    SIGN,
    a_job,
    cancelled,
    dead,
    done,
    ids,
    running,
    seen,
    settle,
    take,
    take_one,
    write,
)
from hawser.testing.contract.waits import WEEK, arrive, held


async def gathering(store: Store, *children: NewJob, **fields: Any) -> Claimed:
    """A run that waits for these jobs, which follow from it."""
    run = await running(store, **fields)
    await write(store, settle(run, Held("parts", jobs=tuple(ids(children))), *children))
    return run


async def test_a_job_waits_until_its_own_jobs_are_done(store: Store) -> None:
    """
    It is given out again when its event has come, or all its jobs are done, or its time is over.
    The jobs that it waits for are added with the settlement; those that are there are not added again.
    A wait for jobs comes to what the arrival says.
    """
    children = [a_job(queue="parts") for _ in range(3)]
    run = await gathering(store, *children)
    assert (await seen(store, run.id)).held
    [step] = await store.steps(run.id)
    assert (step.kind, step.value) == ("wait", ids(children))
    waits = await store.waits(run.id)
    assert isinstance(waits, Waits)
    assert (waits.total, waits.left) == (3, 3)
    for child in await take(store, queue="parts"):
        assert (await seen(store, child.id)).parent_id == run.id
        assert await take(store) == []
        await write(store, done(child, result=b"7"))
    again = await take_one(store)
    assert (again.id, again.attempt) == (run.id, 1)
    step = await arrive(store, again, "parts", b"[7,7,7]")
    assert (step.kind, step.value) == ("gather", [7, 7, 7])
    assert await arrive(store, again, "parts", b"[8]") == step


async def test_jobs_that_are_there_are_not_added_again(store: Store) -> None:
    """The jobs that it waits for are added with the settlement; those that are there are not added again."""
    children = [a_job(queue="parts") for _ in range(2)]
    run = await gathering(store, *children)
    first, second_ = await take(store, queue="parts")
    await write(store, done(first))
    await store.cancel([run.id], SIGN)
    await store.requeue([run.id], SIGN)
    again = await take_one(store)
    await write(store, settle(again, Held("parts", jobs=tuple(ids(children))), *children))
    assert (await seen(store, run.id)).held
    await write(store, done(second_))
    third = await take_one(store)
    await write(store, settle(third, Held("parts", jobs=tuple(ids(children))), *children))
    assert ids(await take(store)) == [run.id], "all of them are done"
    assert await take(store, queue="parts") == []


@pytest.mark.parametrize("group", [None, "acme"])
async def test_a_dead_child_keeps_its_parent_waiting(store: Store, group: str | None) -> None:
    """When one of them is dead it waits on; when one is cancelled, it is cancelled, too."""
    child = a_job(queue="parts")
    run = await gathering(store, child, group=group)
    await write(store, dead(await take_one(store, queue="parts")))
    assert (await seen(store, run.id)).held
    await store.requeue([child.id], SIGN)
    await write(store, done(await take_one(store, queue="parts")))
    assert ids(await take(store)) == [run.id]


@pytest.mark.parametrize("group", [None, "acme"])
async def test_a_cancelled_child_cancels_its_parent(store: Store, group: str | None) -> None:
    """When one of them is dead it waits on; when one is cancelled, it is cancelled, too."""
    child = a_job(queue="parts")
    run = await gathering(store, child, group=group)
    await write(store, cancelled(await take_one(store, queue="parts")))
    job = await seen(store, run.id)
    assert (job.state, job.held) == (State.CANCELLED, False)
    assert job.reason == f"it waited for job {child.id}, which is cancelled"
    assert (await store.stats()).held == 0
    await store.requeue([run.id], SIGN)
    again = await take_one(store)
    await write(store, settle(again, Held("parts", jobs=(child.id,)), child))
    assert (await seen(store, run.id)).state is State.CANCELLED, "the child is cancelled already"


async def test_a_parent_that_was_itself_held_waits_for_done_ones(store: Store) -> None:
    """When one of them is dead it waits on; when one is cancelled, it is cancelled, too."""
    before = await running(store, queue="before")
    parent = a_job().after(before.id, on="ended")
    await store.enqueue([parent])
    await write(store, dead(before))
    run, child = await take_one(store), a_job(queue="parts")
    await write(store, settle(run, Held("parts", jobs=(child.id,)), child))
    await write(store, dead(await take_one(store, queue="parts")))
    assert (await seen(store, run.id)).held


async def test_parents_do_not_take_the_places_of_their_children(store: Store) -> None:
    """A held job has no lease and burns no attempt: its attempts are counted anew."""
    children = [a_job() for _ in range(20)]
    for child in children:
        run = await running(store)
        await write(store, settle(run, Held("parts", jobs=(child.id,)), child))
        [first] = await store.claim([Share("default", most=1)], 1, "w1", 60.0)
        assert first.id == child.id
        await write(store, done(first))
        await write(store, done(await take_one(store)))


async def test_an_event_does_not_release_a_job_that_waits_for_jobs(store: Store) -> None:
    """It is given out again when its event has come, or all its jobs are done, or its time is over."""
    run = await held(store, timeout=50)
    await store.cancel([run.id], SIGN)
    await store.requeue([run.id], SIGN)
    again, child = await take_one(store), a_job(queue="parts")
    await write(store, settle(again, Held("parts", jobs=(child.id,)), child))
    await store.emit("packed", b"1", WEEK)
    assert (await seen(store, run.id)).held
    await write(store, done(await take_one(store, queue="parts")))
    assert ids(await take(store)) == [run.id]
