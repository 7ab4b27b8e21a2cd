"""What living workers declare."""

from __future__ import annotations

from hawser.schedule.declaration import Declaration
from hawser.store import Store
from hawser.store.schedules import DECLARED_FOR
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import Opener

OLD = Declaration(id="old", names=("a", "b"))
NEW = Declaration(id="new", names=("b", "c"))


async def test_what_workers_declare_is_given_oldest_first(store: Store, second: Opener, clock: ManualClock) -> None:
    """Note that a living worker makes this declaration, and give all that living workers make, oldest first."""
    other = await second()
    assert await store.declare(OLD) == [OLD]
    clock.advance(1)
    assert await other.declare(NEW) == [OLD, NEW]
    assert await store.declare(Declaration(id="none", names=())) == [OLD, NEW, Declaration(id="none", names=())]


async def test_a_declaration_that_is_repeated_keeps_its_place(store: Store, reopen: Opener, clock: ManualClock) -> None:
    """A declaration that is repeated in time keeps its place."""
    await store.declare(OLD)
    await store.declare(NEW)
    for _ in range(5):
        clock.advance(DECLARED_FOR - 1)
        assert await store.declare(OLD) == [OLD, NEW]
        assert await store.declare(NEW) == [OLD, NEW]
    store = await reopen()
    assert await store.declare(OLD) == [OLD, NEW]


async def test_a_declaration_that_nobody_makes_is_forgotten(store: Store, clock: ManualClock) -> None:
    """One that no worker has made for `DECLARED_FOR` seconds is forgotten; made again, it is new."""
    await store.declare(OLD)
    await store.declare(NEW)
    clock.advance(DECLARED_FOR - 0.001)
    assert await store.declare(NEW) == [OLD, NEW]
    clock.advance(0.001)
    assert await store.declare(NEW) == [NEW]
    assert await store.declare(OLD) == [NEW, OLD]
    clock.advance(DECLARED_FOR)
    assert await store.declare(NEW) == [NEW]


async def test_a_clock_set_back_keeps_no_declaration_for_longer(store: Store, clock: ManualClock) -> None:
    """After the store's clock was set back, none lasts longer than it would have."""
    await store.declare(OLD)
    clock.advance(-3_600)
    assert await store.declare(NEW) == [OLD, NEW]
    clock.advance(DECLARED_FOR)
    assert await store.declare(NEW) == [NEW]
