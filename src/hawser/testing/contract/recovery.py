"""Jobs that wait for others are gone on with by any process, at any time."""

from __future__ import annotations

import asyncio

from hawser.store import Store
from hawser.testing.contract.dependencies import due, put, waiting
from hawser.testing.contract.making import Opener, add, done, running, seen, write


async def test_going_on_says_whether_to_do_so_again(store: Store) -> None:
    """It answers whether it is to be called again within `GO_ON_WITHIN` seconds."""
    await put(store, waiting(await add(store)))
    assert await store.go_on() in {True, False}


async def test_what_has_ended_is_gone_on_with(store: Store, second: Opener) -> None:
    """Go on with jobs and batches that wait for what has ended or come, and with waits whose time is over, where the process
    died that was to do so."""
    first = await running(store)
    job = waiting(first.id)
    await put(store, job)
    await write(store, done(first))
    await (await second()).go_on()
    assert await due(store) == [job.id]


async def test_going_on_at_any_time_releases_once(store: Store, second: Opener) -> None:
    """Any number of processes may call it, at any time: each job is released once."""
    other = await second()
    first = await running(store)
    job = waiting(first.id)
    await put(store, job)
    await asyncio.gather(*(each.go_on() for each in (store, other)))
    assert await due(store) == []
    await asyncio.gather(write(store, done(first)), *(each.go_on() for each in (store, other)))
    assert await due(store) == [job.id]
    await asyncio.gather(*(each.go_on() for each in (store, other)))
    assert await due(store) == []
    assert (await seen(store, job.id)).attempt == 1
