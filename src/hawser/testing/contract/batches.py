"""Batches: what they release, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hawser.batch import Batch, BatchState, NewBatch, new_batch
from hawser.errors import IdConflict, InvalidJob
from hawser.job import State
from hawser.outcome import Cancelled, Dead, Done, Failure, Outcome
from hawser.store import Acted, Actor, Filter, Retention, Store, Upstream, Waits
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    dead,
    done,
    failed,
    ids,
    lose,
    now,
    seen,
    settle,
    take,
    take_one,
    write,
)
from hawser.value.ids import new_id

WORDS = ("then", "on_success", "on_dead")


async def opened(store: Store, *words: str, **fields: Any) -> NewBatch:
    """A batch that releases these, each in the queue "later"."""
    jobs = {word: a_job(task=word, queue="later") for word in words or WORDS}
    batch = new_batch(**{"name": "import", **jobs, **fields})
    assert await store.open_batch(batch)
    return batch


async def filled(store: Store, batch: NewBatch, count: int = 2, **fields: Any) -> list[str]:
    jobs = [a_job(batch=batch.id, **fields) for _ in range(count)]
    assert all(answer.created for answer in await store.enqueue(jobs))
    return ids(jobs)


async def closed(store: Store, batch: NewBatch) -> None:
    assert await store.close_batch(batch.id) is Acted.DONE


async def look(store: Store, batch: NewBatch | str) -> Batch:
    found = await store.batch(batch if isinstance(batch, str) else batch.id)
    assert found is not None
    return found


async def released(store: Store) -> list[str]:
    """The words of the jobs that were released since the last look, claimed."""
    return sorted(job.task for job in await take(store, queue="later"))


async def ended_as(store: Store, *outcomes: Outcome) -> NewBatch:
    """A batch whose members have ended so."""
    batch = await opened(store)
    await filled(store, batch, len(outcomes))
    await closed(store, batch)
    await write(store, *(settle(job, outcome) for job, outcome in zip(await take(store), outcomes, strict=True)))
    return batch


DEAD, CANCELLED = Dead(Failure("Drop: gone")), Cancelled("not wanted")


async def test_a_batch_releases_its_jobs_when_all_have_ended(store: Store, clock: ManualClock) -> None:
    """Add a batch and the jobs that it releases, all or none; False, and nothing changes, when the store has its id already."""
    batch = await opened(store)
    assert not await store.open_batch(batch)
    assert (await store.stats("later")).held == 3
    assert [(await seen(store, job.id)).held for job in batch.follow_ups.values()] == [True] * 3
    await filled(store, batch, 3)
    await closed(store, batch)
    for job in await take(store):
        assert await released(store) == []
        await write(store, done(job))
    assert await released(store) == ["on_success", "then"]
    found = await look(store, batch)
    assert (found.state, found.total, found.done, found.ended_at) == (BatchState.DONE, 3, 3, now(clock))
    assert (found.then, found.on_success, found.on_dead) == tuple(batch.follow_ups[word].id for word in WORDS)
    assert (await store.stats("later")).held == 0


async def test_a_batch_whose_job_belongs_to_another_is_refused(store: Store) -> None:
    """Add a batch and the jobs that it releases, all or none; False, and nothing changes, when the store has its id already."""
    other = a_job(task="other")
    await store.enqueue([other])
    batch = new_batch(name="import", then=a_job(), on_dead=a_job(id=other.id))
    with pytest.raises(IdConflict):
        await store.open_batch(batch)
    assert await store.batch(batch.id) is None
    assert batch.then is not None
    assert await store.get(batch.then.id) is None


@pytest.mark.parametrize(
    ("outcomes", "state", "free", "gone"),
    [
        ([Done(), Done()], BatchState.DONE, ["on_success", "then"], ["on_dead"]),
        ([Done(), DEAD], BatchState.DEAD, ["on_dead", "then"], []),
        ([Done(), CANCELLED], BatchState.CANCELLED, ["then"], ["on_success", "on_dead"]),
        ([DEAD, CANCELLED], BatchState.DEAD, ["on_dead", "then"], []),
    ],
    ids=["done", "dead", "cancelled", "both"],
)
async def test_what_a_batch_releases_depends_on_its_end(
    store: Store, outcomes: list[Outcome], state: BatchState, free: list[str], gone: list[str]
) -> None:
    """Each of these jobs is held, and released once: `then` when the batch is closed and all its members have ended, `on_success`
    when all are done, also later by a requeue, `on_dead` at the first death.
    When it ends with a cancelled member and no dead one, `on_success` is cancelled; when it ends without a death, `on_dead`
    is."""
    batch = await ended_as(store, *outcomes)
    assert (await look(store, batch)).state is state
    assert await released(store) == free
    for word in gone:
        job = await seen(store, batch.follow_ups[word].id)
        assert (job.state, job.held) == (State.CANCELLED, False)
        assert job.reason is not None
        assert job.reason.startswith(f"it waited for batch {batch.id}, which ")
    held = len(WORDS) - len(free) - len(gone)
    assert (await store.stats("later")).held == held


async def test_the_first_death_releases_on_dead_before_the_end(store: Store) -> None:
    """Each of these jobs is held, and released once: `then` when the batch is closed and all its members have ended, `on_success`
    when all are done, also later by a requeue, `on_dead` at the first death."""
    batch = await opened(store)
    await filled(store, batch, 3)
    first, second, third = await take(store)
    await write(store, dead(first))
    assert await released(store) == ["on_dead"]
    await write(store, dead(second))
    assert await released(store) == []
    await write(store, done(third))
    await closed(store, batch)
    assert await released(store) == ["then"]


async def test_a_requeue_after_the_end_makes_it_a_success(store: Store) -> None:
    """Each of these jobs is held, and released once: `then` when the batch is closed and all its members have ended, `on_success`
    when all are done, also later by a requeue, `on_dead` at the first death."""
    batch = await ended_as(store, Done(), DEAD, DEAD)
    assert await released(store) == ["on_dead", "then"]
    [one, other] = [job.id for job in (await store.find(Filter(state=State.DEAD, batch=batch.id))).jobs]
    assert await store.requeue([one, other], SIGN) == [Acted.DONE] * 2
    found = await look(store, batch)
    assert (found.state, found.waiting, found.dead, found.done) == (BatchState.RUNNING, 2, 0, 1)
    first, second = await take(store)
    await write(store, done(first), dead(second))
    assert (await released(store), (await look(store, batch)).state) == ([], BatchState.DEAD)
    await store.requeue([second.id], SIGN)
    await write(store, done(await take_one(store)))
    assert (await released(store), (await look(store, batch)).state) == (["on_success"], BatchState.DONE)


async def test_a_batch_that_is_not_closed_does_not_end(store: Store, reopen: Opener) -> None:
    """A batch that is not closed does not end."""
    batch = await opened(store)
    await filled(store, batch, 1)
    await write(store, done(await take_one(store)))
    store = await reopen()
    found = await look(store, batch)
    assert (found.state, found.total, found.done, found.closed, found.ended_at) == (BatchState.OPEN, 1, 1, False, None)
    assert await released(store) == []
    await closed(store, batch)
    assert await released(store) == ["on_success", "then"]


async def test_a_batch_that_is_not_closed_stays_open(store: Store) -> None:
    """A batch that is not closed does not end."""
    batch = await opened(store)
    await filled(store, batch, 1)
    await write(store, done(await take_one(store)))
    assert (await look(store, batch)).state is BatchState.OPEN
    assert await released(store) == []


async def test_an_ended_batch_takes_no_more(store: Store) -> None:
    """What is added to a batch that the store does not have, that has ended or is cancelled is refused with `InvalidJob`, and
    nothing is written."""
    batch = await opened(store)
    await closed(store, batch)
    refused = False
    try:
        await store.enqueue([a_job(batch=batch.id)])
    except InvalidJob:
        refused = True
    assert refused
    assert await take(store) == []


async def test_an_empty_batch_ends_when_it_is_closed(store: Store) -> None:
    """An empty batch ends when it is closed."""
    batch = await opened(store)
    await closed(store, batch)
    assert await released(store) == ["on_success", "then"]
    assert ((await look(store, batch)).state, (await look(store, batch)).total) == (BatchState.DONE, 0)
    plain = await opened(store, "then", name="nothing follows", then=None)
    await closed(store, plain)
    assert (await look(store, plain)).state is BatchState.DONE


async def test_closing_is_said_once(store: Store) -> None:
    """Say that its producer adds no more.
    One that is closed already is in the wrong state.
    With an actor it leaves an audit record."""
    batch = await opened(store)
    assert await store.close_batch(new_id()) is Acted.NOT_FOUND
    assert await store.close_batch(batch.id, SIGN) is Acted.DONE
    assert await store.close_batch(batch.id, SIGN) is Acted.WRONG_STATE
    other = await opened(store)
    await closed(store, other)
    [record] = await store.audit()
    assert (record.action, record.target, record.by) == ("close_batch", f"batch:{batch.id}", "ann")


async def test_a_failed_attempt_and_a_lost_run_end_nothing(store: Store, clock: ManualClock) -> None:
    batch = await opened(store)
    await filled(store, batch, 1, max_attempts=3)
    await closed(store, batch)
    await write(store, failed(await take_one(store)))
    await take_one(store)
    await lose(store, clock)
    found = await look(store, batch)
    assert (found.waiting, found.running, await released(store)) == (1, 0, [])
    await take_one(store)
    await lose(store, clock)
    assert await released(store) == ["on_dead", "then"]


async def test_a_follow_up_keeps_its_own_delay(store: Store, clock: ManualClock) -> None:
    batch = await opened(store, "then", then=a_job(queue="later", delay=60))
    clock.advance(90)
    await closed(store, batch)
    assert await released(store) == []
    clock.advance(60)
    assert len(await take(store, queue="later")) == 1


async def test_many_settlers_end_a_batch_once(store: Store, second: Opener) -> None:
    """Each of these jobs is held, and released once: `then` when the batch is closed and all its members have ended, `on_success`
    when all are done, also later by a requeue, `on_dead` at the first death."""
    other = await second()
    for _ in range(5):
        batch = await opened(store)
        await filled(store, batch, 8)
        claimed = await take(store)
        writes = [write(store if n % 2 else other, done(job)) for n, job in enumerate(claimed)]
        await asyncio.gather(closed(other, batch), *writes)
        await store.reclaim(10)
        assert await released(store) == ["on_success", "then"]
        assert ((await look(store, batch)).done, (await store.stats("later")).held) == (8, 0)


async def test_other_jobs_may_wait_for_a_batch(store: Store) -> None:
    """Other jobs may wait for a batch as for a job: it is done when all its members are."""
    batch = await opened(store, "then", then=None)
    [member] = await filled(store, batch, 1)
    jobs = [a_job(task="done", queue="later").after(batch), a_job(task="ended", queue="later").after(batch.id, on="ended")]
    both = a_job(task="both", queue="later").after(batch, member)
    await store.enqueue([*jobs, both])
    assert await store.waits(jobs[0].id) == Waits(1, 1, (Upstream(batch.id, State.READY, "import"),))
    await closed(store, batch)
    claimed = await take_one(store)
    await write(store, dead(claimed))
    assert await released(store) == ["ended"]
    assert await store.waits(jobs[0].id) == Waits(1, 1, (Upstream(batch.id, State.DEAD, "import"),))
    await store.requeue([claimed.id], SIGN)
    await write(store, done(await take_one(store)))
    assert await released(store) == ["both", "done"]
    late = a_job(task="late", queue="later").after(batch.id)
    await store.enqueue([late])
    assert await released(store) == ["late"], "it has ended already"


async def test_a_follow_up_may_be_cancelled_alone(store: Store) -> None:
    batch = await opened(store)
    assert await store.cancel([batch.follow_ups["then"].id], SIGN) == [Acted.DONE]
    await closed(store, batch)
    assert await released(store) == ["on_success"]


async def test_a_batch_goes_when_its_time_is_over(store: Store, clock: ManualClock) -> None:
    """So goes a batch that has ended.
    What still waits for it is cancelled."""
    brief = Retention(done=10, dead=20, cancelled=10)
    good, bad = await ended_as(store, Done()), await ended_as(store, DEAD)
    unclosed = await opened(store)
    await released(store)
    clock.advance(15)
    await store.prune(brief, {}, 1_000)
    assert [await store.batch(batch.id) is None for batch in (good, bad, unclosed)] == [True, False, False]
    assert (await seen(store, bad.follow_ups["on_success"].id)).held
    clock.advance(10)
    await store.prune(Retention(done=1000, dead=20, cancelled=1000), {}, 1_000)
    assert [await store.batch(batch.id) is None for batch in (bad, unclosed)] == [True, False]
    job = await seen(store, bad.follow_ups["on_success"].id)
    assert job.state is State.CANCELLED
    assert job.reason == f"it waited for batch {bad.id}, which was removed while it was dead"


async def test_an_unknown_batch_is_none(store: Store) -> None:
    """The batch, or None."""
    assert await store.batch(new_id()) is None
    assert await store.batch("nonsense") is None
    batch = await opened(store, name="Ausfuhr 42 ✓")
    assert (await look(store, batch)).name == "Ausfuhr 42 ✓"
    assert await store.cancel_batch(new_id(), Actor()) is Acted.NOT_FOUND


async def test_batches_that_have_not_ended_are_counted(store: Store) -> None:
    """How many batches are open and how many run; those that have ended are not counted."""
    assert await store.live_batches() == {BatchState.OPEN: 0, BatchState.RUNNING: 0}
    made = [await opened(store, "then") for _ in range(4)]
    await filled(store, made[0], 1)
    await closed(store, made[0])
    await closed(store, made[1])
    assert await store.live_batches() == {BatchState.OPEN: 2, BatchState.RUNNING: 1}
    await write(store, done(await take_one(store)))
    assert await store.live_batches() == {BatchState.OPEN: 2, BatchState.RUNNING: 0}


async def test_what_a_batch_releases_may_have_a_group(store: Store) -> None:
    """Each of these jobs is held, and released once: `then` when the batch is closed and all its members have ended, `on_success`
    when all are done, also later by a requeue, `on_dead` at the first death."""
    batch = await opened(store, then=a_job(task="then", queue="later", group="acme"))
    await filled(store, batch, 1)
    await closed(store, batch)
    assert await released(store) == []
    await write(store, done(await take_one(store)))
    [job] = [job for job in await take(store, queue="later") if job.task == "then"]
    assert job.group == "acme"
