"""Batches inside others."""

from __future__ import annotations

import pytest

from hawser.batch import BatchState, new_batch
from hawser.errors import InvalidJob
from hawser.store import Store
from hawser.testing.contract.batches import closed, filled, look, opened, released
from hawser.testing.contract.making import SIGN, a_job, dead, done, take, take_one, write
from hawser.value.ids import new_id


async def test_a_batch_counts_in_its_parent(store: Store) -> None:
    """A batch counts as one member of its parent until it has ended."""
    parent = await opened(store)
    child = await opened(store, "then", then=None, parent=parent.id)
    await filled(store, parent, 1)
    await filled(store, child, 2)
    await closed(store, parent)
    found = await look(store, parent)
    assert (found.total, found.waiting, (await look(store, child)).parent) == (2, 2, parent.id)
    first, second, third = await take(store)
    await write(store, done(first), done(second), done(third))
    assert ((await look(store, parent)).done, (await look(store, child)).done) == (1, 2)
    assert await released(store) == []
    await closed(store, child)
    assert (await look(store, parent)).done == 2
    assert await released(store) == ["on_success", "then"]


async def test_the_death_of_a_batch_is_one_of_its_parent_and_so_is_its_replay(store: Store) -> None:
    """A batch counts as one member of its parent until it has ended."""
    top = await opened(store)
    middle = await opened(store, "then", then=None, parent=top.id)
    child = await opened(store, "then", then=None, parent=middle.id)
    for batch in (top, middle, child):
        await closed(store, batch)
    assert await released(store) == ["on_success", "then"], "an empty one ends, and so do those around it"
    top = await opened(store)
    middle = await opened(store, "then", then=None, parent=top.id)
    child = await opened(store, "then", then=None, parent=middle.id)
    await filled(store, child, 1)
    for batch in (top, middle, child):
        await closed(store, batch)
    claimed = await take_one(store)
    await write(store, dead(claimed))
    assert [(await look(store, batch)).dead for batch in (top, middle, child)] == [1, 1, 1]
    assert await released(store) == ["on_dead", "then"]
    await store.requeue([claimed.id], SIGN)
    assert [(await look(store, batch)).waiting for batch in (top, middle, child)] == [1, 1, 1]
    await write(store, done(await take_one(store)))
    assert [(await look(store, batch)).state for batch in (top, middle, child)] == [BatchState.DONE] * 3
    assert await released(store) == ["on_success"]


@pytest.mark.parametrize("what", ["unknown", "ended", "cancelled"])
async def test_a_parent_that_takes_no_more_is_refused(store: Store, what: str) -> None:
    """A parent that the store does not have, that has ended or is cancelled is refused with `InvalidJob`, and nothing is
    written."""
    parent = await opened(store, "then", then=None)
    if what == "cancelled":
        await filled(store, parent, 1)
        await take_one(store)
        await store.cancel_batch(parent.id, SIGN)
    elif what == "ended":
        await closed(store, parent)
    batch = new_batch(name="child", parent=new_id() if what == "unknown" else parent.id, then=a_job())
    with pytest.raises(InvalidJob, match=r"parent: .*batch"):
        await store.open_batch(batch)
    assert await store.batch(batch.id) is None
    assert batch.then is not None
    assert await store.get(batch.then.id) is None
