"""Jobs that are requeued with a spread."""

from __future__ import annotations

from hawser.clock import at, to_us
from hawser.job import State
from hawser.store import Acted, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, add, ids, in_state, seen, take


async def test_requeued_with_a_spread_they_fall_due_evenly(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """Requeued with a spread, they fall due evenly over it, in their order, from `delay` seconds on."""
    dead = [await in_state(store, State.DEAD) for _ in range(5)]
    assert await store.requeue(dead, SIGN, 10, 100) == [Acted.DONE] * 5
    began = clock.now()
    store = await reopen()
    assert [(await seen(store, id)).run_at for id in dead] == [at(began + to_us(100 + 2 * n)) for n in range(5)]
    clock.advance(99)
    assert await take(store) == []
    clock.advance(1)
    given = []
    for _ in range(5):
        given += ids(await take(store))
        clock.advance(2)
    assert given == dead
    stats = await store.stats()
    assert (stats.ready, stats.running, stats.dead) == (0, 5, 0)


async def test_groups_hear_of_the_times_of_their_jobs(store: Store, clock: ManualClock) -> None:
    """Requeued with a spread, they fall due evenly over it, in their order, from `delay` seconds on."""
    dead = [await in_state(store, State.DEAD, group="a") for _ in range(2)]
    await store.requeue(dead, SIGN, 20)
    assert ids(await take(store)) == dead[:1]
    clock.advance(9)
    assert await take(store) == []
    clock.advance(1)
    assert ids(await take(store)) == dead[1:]


async def test_without_a_spread_they_are_due_at_once(store: Store) -> None:
    """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept."""
    dead = [await in_state(store, State.DEAD), await in_state(store, State.CANCELLED)]
    waiting = await add(store, delay=60)
    assert await store.requeue([*dead, waiting], SIGN) == [Acted.DONE, Acted.DONE, Acted.WRONG_STATE]
    assert sorted(ids(await take(store))) == sorted(dead)
