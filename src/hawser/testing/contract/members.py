"""The members of batches, and how they are counted."""

from __future__ import annotations

from typing import Any

import pytest

from hawser.batch import BatchState, new_batch
from hawser.errors import InvalidJob
from hawser.job import FOREVER, State
from hawser.limit import Limit
from hawser.store import Acted, Filter, LeaseRef, Retention, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.batches import closed, filled, look, opened, released
from hawser.testing.contract.cost import fastest
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    ask_to_stop,
    cancelled,
    dead,
    done,
    failed,
    ids,
    in_state,
    lose,
    running,
    seen,
    snoozed,
    take,
    take_one,
    write,
)
from hawser.value.ids import new_id


async def counts(store: Store, batch: Any) -> tuple[int, int, int, int, int, int]:
    """Total, waiting, running, done, dead and cancelled."""
    found = await look(store, batch)
    return found.total, found.waiting, found.running, found.done, found.dead, found.cancelled


async def test_every_way_of_a_member_is_counted(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """The batch, or None.
    Its counts are exact, however its members ended."""
    batch = await opened(store)
    await filled(store, batch, 6, max_attempts=2)
    assert await counts(store, batch) == (6, 6, 0, 0, 0, 0)
    first, second, third, fourth, fifth, sixth = await take(store, lease_for=3600)
    assert await counts(store, batch) == (6, 0, 6, 0, 0, 0)
    await write(store, done(first), failed(second), dead(third), snoozed(fourth, 9), cancelled(fifth), done(sixth, keep=False))
    assert await counts(store, batch) == (6, 2, 0, 2, 1, 1)
    await store.discard([third.id], SIGN)
    assert await counts(store, batch) == (6, 2, 0, 2, 0, 2)
    await store.requeue([third.id, fifth.id], SIGN)
    assert await counts(store, batch) == (6, 4, 0, 2, 0, 0)
    await store.cancel([fourth.id], SIGN)
    await store.dead_letter([third.id], SIGN)
    store = await reopen()
    assert await counts(store, batch) == (6, 2, 0, 2, 1, 1)
    asked, lost = await take(store)
    await ask_to_stop(store, asked)
    await write(store, failed(asked))
    assert await counts(store, batch) == (6, 0, 1, 2, 1, 2)
    await lose(store, clock)
    left = {asked.id, lost.id} - {second.id}
    assert await counts(store, batch) == ((6, 1, 0, 2, 1, 2) if lost.id in left else (6, 0, 0, 2, 2, 2))


async def test_a_late_end_is_counted(store: Store, clock: ManualClock) -> None:
    """Its counts are exact, however its members ended."""
    batch = await opened(store)
    await filled(store, batch, 1)
    claimed = await take_one(store)
    await lose(store, clock)
    assert await counts(store, batch) == (1, 1, 0, 0, 0, 0)
    assert await store.end_returned(LeaseRef(claimed.id, claimed.lease))
    assert await counts(store, batch) == (1, 0, 0, 0, 0, 1)


async def test_a_member_names_its_batch(store: Store) -> None:
    """A job of a batch is a member of it from then on; one that is not added again counts no second time."""
    batch = await opened(store)
    [first, second] = await filled(store, batch, 2)
    other = a_job()
    await store.enqueue([other])
    claimed = {job.id: job.batch for job in await take(store)}
    assert claimed == {first: batch.id, second: batch.id, other.id: None}
    assert [(await seen(store, id)).batch for id in claimed] == list(claimed.values())
    page = await store.find(Filter(batch=batch.id))
    assert sorted(ids(page.jobs)) == sorted([first, second])
    assert (await store.find(Filter(batch=new_id()))).jobs == []


async def test_a_repeated_enqueue_of_a_batch_adds_nothing(store: Store) -> None:
    """A job of a batch is a member of it from then on; one that is not added again counts no second time."""
    batch, jobs = await opened(store), []
    jobs = [a_job(batch=batch.id) for _ in range(3)]
    await store.enqueue(jobs)
    assert [answer.created for answer in await store.enqueue(jobs)] == [False] * 3
    assert await counts(store, batch) == (3, 3, 0, 0, 0, 0)
    for claimed in await take(store):
        await write(store, done(claimed))
    await store.enqueue(jobs)
    assert await counts(store, batch) == (3, 0, 0, 3, 0, 0)
    await closed(store, batch)
    await store.enqueue(jobs)
    assert await counts(store, batch) == (3, 0, 0, 3, 0, 0)


async def test_the_holder_of_a_key_counts_as_the_member(store: Store) -> None:
    """Where its key is held, the holder counts as the member."""
    holder = await running(store, key="k")
    batch, other = await opened(store), await opened(store, "then", then=None)
    for each in (batch, other):
        for _ in range(2):
            [answer] = await store.enqueue([a_job(key="k", batch=each.id)])
            assert (answer.id, answer.created) == (holder.id, False)
        await closed(store, each)
        assert await counts(store, each) == (1, 0, 1, 0, 0, 0)
    await write(store, dead(holder))
    assert await counts(store, batch) == await counts(store, other) == (1, 0, 0, 0, 1, 0)
    assert await released(store) == ["on_dead", "then"]
    await store.requeue([holder.id], SIGN)
    assert await counts(store, batch) == (1, 1, 0, 0, 0, 0)
    await write(store, done(await take_one(store)))
    assert await counts(store, batch) == await counts(store, other) == (1, 0, 0, 1, 0, 0)
    assert await released(store) == ["on_success"]


@pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.CANCELLED])
async def test_a_holder_that_has_ended_counts_so(store: Store, state: State) -> None:
    """Where its key is held, the holder counts as the member."""
    holder = await in_state(store, state, key="k", key_ttl=FOREVER)
    batch = await opened(store)
    [answer] = await store.enqueue([a_job(key="k", batch=batch.id)])
    assert answer.id == holder
    assert getattr(await look(store, batch), state) == (await look(store, batch)).total == 1
    await closed(store, batch)
    assert (await look(store, batch)).state == BatchState(state)


async def test_a_holder_of_the_same_batch_counts_once(store: Store) -> None:
    """Where its key is held, the holder counts as the member."""
    batch = await opened(store)
    await store.enqueue([a_job(key="k", batch=batch.id), a_job(key="k", batch=batch.id)])
    await store.enqueue([a_job(key="k", batch=batch.id)])
    assert await counts(store, batch) == (1, 1, 0, 0, 0, 0)


@pytest.mark.parametrize("what", ["unknown", "ended", "cancelled"])
async def test_a_batch_that_takes_no_more_refuses_jobs(store: Store, what: str) -> None:
    """What is added to a batch that the store does not have, that has ended or is cancelled is refused with `InvalidJob`, and
    nothing is written."""
    batch, plain = await opened(store), a_job(queue="idle")
    if what == "ended":
        await closed(store, batch)
    elif what == "cancelled":
        await filled(store, batch, 1)
        await take_one(store)
        assert await store.cancel_batch(batch.id, SIGN) is Acted.DONE
    job = a_job(batch=new_id() if what == "unknown" else batch.id)
    words = {"unknown": "this store does not have batch", "ended": "has ended", "cancelled": "is cancelled"}
    with pytest.raises(InvalidJob, match=f"batch: .*{words[what]}"):
        await store.enqueue([plain, job])
    assert [await store.get(each.id) for each in (plain, job)] == [None, None]
    assert (await look(store, batch)).total == (what == "cancelled")


async def test_a_closed_batch_takes_more_until_it_has_ended(store: Store) -> None:
    """A job of a batch is a member of it from then on; one that is not added again counts no second time."""
    batch = await opened(store)
    await filled(store, batch, 1)
    await closed(store, batch)
    await filled(store, batch, 1)
    first, second = await take(store)
    await write(store, done(first))
    assert await released(store) == []
    await write(store, done(second))
    assert await released(store) == ["on_success", "then"]


async def test_what_a_member_adds_counts_from_its_end_on(store: Store) -> None:
    """Jobs that follow and are of the same batch count from the same write on, so the batch does not end between."""
    batch = await opened(store)
    await filled(store, batch, 1)
    await closed(store, batch)
    for _ in range(5):
        claimed = await take_one(store)
        await write(store, done(claimed, a_job(batch=batch.id)))
        found = await look(store, batch)
        assert (found.state, found.waiting, await released(store)) == (BatchState.RUNNING, 1, [])
    await write(store, done(await take_one(store)))
    assert await released(store) == ["on_success", "then"]
    assert await counts(store, batch) == (6, 0, 0, 6, 0, 0)


async def test_a_member_may_hand_its_key_on(store: Store) -> None:
    """Jobs that follow and are of the same batch count from the same write on, so the batch does not end between."""
    batch = await opened(store)
    await filled(store, batch, 1, key="k")
    await closed(store, batch)
    await write(store, done(await take_one(store), a_job(batch=batch.id, key="k")))
    assert await counts(store, batch) == (2, 1, 0, 1, 0, 0)
    assert await released(store) == []


async def test_a_requeued_member_may_add_to_a_batch_that_had_ended(store: Store) -> None:
    """Jobs that follow and are of the same batch count from the same write on, so the batch does not end between."""
    batch = await opened(store)
    await filled(store, batch, 1)
    await closed(store, batch)
    claimed = await take_one(store)
    await write(store, dead(claimed))
    await store.requeue([claimed.id], SIGN)
    await released(store)
    await write(store, done(await take_one(store), a_job(batch=batch.id)))
    assert await released(store) == []
    await write(store, done(await take_one(store)))
    assert await released(store) == ["on_success"]


async def test_a_follower_that_no_batch_takes_is_cancelled(store: Store) -> None:
    """Those of a batch that is not there, is cancelled, or is another one that has ended, are cancelled."""
    over, own = await opened(store), await opened(store)
    await closed(store, over)
    await filled(store, own, 1)
    claimed = await take_one(store)
    await store.cancel_batch(own.id, SIGN)
    unknown = new_id()
    jobs = {why: a_job(batch=id) for id, why in ((over.id, "has ended"), (own.id, "is cancelled"), (unknown, "this store does"))}
    await write(store, done(claimed, *jobs.values()))
    for why, job in jobs.items():
        found = await seen(store, job.id)
        assert found.state is State.CANCELLED
        assert f"it was to be added to batch {job.batch}, which {why}" in (found.reason or "")
    assert ((await look(store, over)).total, (await look(store, own)).total) == (0, 1)


async def test_a_replay_with_another_payload_takes_the_place_of_the_member(store: Store) -> None:
    """Its counts are exact, however its members ended."""
    batch = await opened(store)
    await filled(store, batch, 2)
    await closed(store, batch)
    first, second = await take(store)
    await write(store, dead(first), done(second))
    assert await released(store) == ["on_dead", "then"]
    new = a_job(body=b'{"n":1}')
    assert await store.replace(first.id, new, SIGN) is Acted.DONE
    assert await counts(store, batch) == (2, 1, 0, 1, 0, 0)
    assert (await seen(store, new.id)).batch == batch.id
    await write(store, done(await take_one(store)))
    assert await counts(store, batch) == (2, 0, 0, 2, 0, 0)
    assert await released(store) == ["on_success"]


async def test_a_member_may_wait_for_others_and_be_cancelled_with_them(store: Store) -> None:
    """Its counts are exact, however its members ended."""
    batch = await opened(store)
    upstream = a_job(batch=batch.id)
    await store.enqueue([upstream, a_job(batch=batch.id).after(upstream), a_job(batch=batch.id, delay=60)])
    await closed(store, batch)
    assert await counts(store, batch) == (3, 3, 0, 0, 0, 0)
    await store.cancel([upstream.id], SIGN)
    assert await counts(store, batch) == (3, 1, 0, 0, 0, 2)


async def test_a_member_that_comes_too_late_is_counted_as_cancelled(store: Store, clock: ManualClock) -> None:
    """Its counts are exact, however its members ended."""
    batch = await opened(store)
    await filled(store, batch, 2, expires=10)
    await closed(store, batch)
    clock.advance(11)
    assert await take(store) == []
    await store.expire(10)
    assert await counts(store, batch) == (2, 0, 0, 0, 0, 2)
    assert await released(store) == ["then"]


async def test_limits_and_groups_hold_inside_a_batch(store: Store) -> None:
    """Its counts are exact, however its members ended."""
    batch = await opened(store)
    await store.set_limit(Target("queue", "default"), Limit(running=1), SIGN)
    jobs = [a_job(batch=batch.id, group=name) for name in "aab"]
    await store.enqueue(jobs)
    await closed(store, batch)
    for left in (2, 1, 0):
        [claimed] = await take(store)
        assert await counts(store, batch) == (3, left, 1, 2 - left, 0, 0)
        await write(store, done(claimed))
    assert await released(store) == ["on_success", "then"]


async def test_a_pruned_member_stays_counted(store: Store, clock: ManualClock) -> None:
    """Its counts are exact, however its members ended."""
    batch = await opened(store)
    await filled(store, batch, 3)
    first, second, third = await take(store)
    await write(store, done(first), dead(second), cancelled(third))
    clock.advance(100)
    assert await store.prune(Retention(done=10, dead=10, cancelled=10), {}, 100) == 3
    assert await counts(store, batch) == (3, 0, 0, 1, 1, 1)


async def test_a_large_batch_is_read_as_fast_as_a_small_one(store: Store) -> None:
    """Its cost does not grow with the number of its members."""
    small, large = await opened(store), await opened(store)
    await filled(store, small, 1)
    for _ in range(4):
        await filled(store, large, 1_000)
    await take(store, 1)

    bound = max(0.02, 10 * await fastest(lambda: look(store, small)))
    assert await fastest(lambda: look(store, large), bound) < bound
    assert (await counts(store, large))[:3] in ((4_000, 4_000, 0), (4_000, 3_999, 1))


async def test_batches_are_listed_newest_first(store: Store) -> None:
    """Batches in that state, or all, newest first, from behind the cursor `after`.
    Following `next` to its end visits every batch that is there throughout, once."""
    made = [await opened(store, "then", then=None, name=f"b{n}") for n in range(5)]
    await closed(store, made[1])
    await filled(store, made[3], 1)
    await closed(store, made[3])
    found, after = [], None
    while True:
        page = await store.batches(after=after, limit=2)
        found += page.batches
        if (after := page.next) is None:
            break
    assert [batch.name for batch in found] == ["b4", "b3", "b2", "b1", "b0"]
    assert found[1] == await store.batch(made[3].id)
    by_state = {state: [batch.name for batch in (await store.batches(state)).batches] for state in BatchState}
    assert by_state == {"open": ["b4", "b2", "b0"], "running": ["b3"], "done": ["b1"], "dead": [], "cancelled": []}
    await store.open_batch(new_batch(name="b5", parent=made[4].id))
    assert [batch.name for batch in (await store.batches(BatchState.OPEN, limit=1)).batches] == ["b5"]
