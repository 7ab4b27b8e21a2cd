"""Output: what runs write while they run is kept in order, fenced, bounded, and goes with its job."""

from __future__ import annotations

import asyncio

import pytest

from hawser.job import Claimed
from hawser.outcome import Dead, Failure
from hawser.store import MAX_CHUNK, MAX_CHUNKS, MAX_OUTPUT, NewOutput, OutputKept, Retention, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Ending, Opener, add, dead, done, lose, now, running, settle, take_one, write
from hawser.value.ids import new_id


def written(run: Claimed, *chunks: bytes, first: int = 0) -> NewOutput:
    return NewOutput(id=run.id, lease=run.lease, attempt=run.attempt, first=first, chunks=chunks)


async def bodies(store: Store, id: str, after: int = 0) -> list[bytes]:
    return [chunk.body for chunk in await store.output(id, after)]


async def test_output_is_kept_in_order_behind_what_is_there(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    Keep what runs have written, in order, behind what their jobs have; the answers say how much is kept.
    Chunks of a job behind that number, in order, at most so many.
    """
    run, other = await running(store), await running(store)
    assert await store.output(run.id) == []
    clock.advance(2)
    both = written(run, b'"one"', b'{"text":"\xc3\xa9"}'), written(other, b"null")
    assert await store.write_output(both) == [OutputKept(2, 18, 2), OutputKept(1, 4, 1)]
    assert await store.write_output([written(run, b"3", first=2), written(run, b"4", first=3)]) == [
        OutputKept(3, 19, 3),
        OutputKept(4, 20, 4),
    ]
    found = await (await reopen()).output(run.id)
    assert [chunk.value for chunk in found] == ["one", {"text": "é"}, 3, 4]
    assert [chunk.number for chunk in found] == [1, 2, 3, 4]
    assert {(chunk.lease, chunk.attempt, chunk.at) for chunk in found} == {(run.lease, 1, now(clock))}
    assert await bodies(store, run.id, 2) == [b"3", b"4"]
    assert [chunk.number for chunk in await store.output(run.id, 1, 2)] == [2, 3]
    assert await bodies(store, run.id, 4) == await bodies(store, run.id, 99) == []
    assert await store.output(new_id()) == await store.output("none") == []
    assert await store.write_output([]) == []


async def test_a_stale_run_writes_nothing(store: Store, clock: ManualClock) -> None:
    """When the lease is not the current one nothing is kept, and the answer is None."""
    old = await running(store)
    await store.write_output([written(old, b"1")])
    await lose(store, clock)
    assert await store.write_output([written(old, b"2", first=1)]) == [None]
    new = await take_one(store)
    assert await store.write_output([written(old, b"3", first=1), written(new, b"4")]) == [None, OutputKept(2, 2, 1)]
    await write(store, done(new))
    assert await store.write_output([written(new, b"5", first=1)]) == [None]
    assert await store.write_output([NewOutput(id="none", lease=1, attempt=1, first=0, chunks=(b"1",))]) == [None]
    assert await bodies(store, new.id) == [b"1", b"4"]


async def test_output_that_is_sent_again_is_kept_once(store: Store, second: Opener) -> None:
    """Chunks of a run that are kept already are not kept twice."""
    run = await running(store)
    await store.write_output([written(run, b"1", b"2")])
    assert await store.write_output([written(run, b"1", b"2")]) == [OutputKept(2, 2, 2)]
    assert await store.write_output([written(run, b"2", b"3", first=1)]) == [OutputKept(3, 3, 3)]
    handles = [store, await second()]
    again = written(run, b"3", b"4", b"5", first=2)
    answers = await asyncio.gather(*(handles[n % 2].write_output([again]) for n in range(6)))
    assert answers == [[OutputKept(5, 5, 5)]] * 6
    assert await bodies(store, run.id) == [b"1", b"2", b"3", b"4", b"5"]


async def test_output_is_bounded_in_bytes(store: Store) -> None:
    """
    A chunk with which the job would have more than `MAX_OUTPUT` bytes or `MAX_CHUNKS` chunks is left out, and so is what the run
    writes behind it.
    """
    run = await running(store)
    large = b'"' + b"x" * (MAX_CHUNK - 2) + b'"'
    fit = MAX_OUTPUT // MAX_CHUNK
    assert await store.write_output([written(run, *[large] * (fit - 1), b"0", large, b"1")]) == [
        OutputKept(fit, (fit - 1) * MAX_CHUNK + 1, fit)
    ]
    assert await store.write_output([written(run, b"2", first=fit + 2)]) == [OutputKept(fit, (fit - 1) * MAX_CHUNK + 1, fit)]
    assert len(await bodies(store, run.id)) == fit


async def test_output_is_bounded_in_chunks(store: Store) -> None:
    """
    A chunk with which the job would have more than `MAX_OUTPUT` bytes or `MAX_CHUNKS` chunks is left out, and so is what the run
    writes behind it.
    """
    run = await running(store)
    [kept] = await store.write_output([written(run, *[b"1"] * (MAX_CHUNKS + 5))])
    assert kept == OutputKept(MAX_CHUNKS, MAX_CHUNKS, MAX_CHUNKS)
    assert [chunk.number for chunk in await store.output(run.id, MAX_CHUNKS - 2)] == [MAX_CHUNKS - 1, MAX_CHUNKS]


async def test_a_later_run_goes_on_behind_the_output_that_is_there(store: Store, reopen: Opener) -> None:
    """Output is kept as long as the job is, however it ended, and what a later run writes stands behind it."""
    run = await running(store, max_attempts=1)
    await store.write_output([written(run, b"1", b"2")])
    await write(store, settle(run, Dead(Failure("Drop: gone"))))
    assert await bodies(store, run.id) == [b"1", b"2"]
    await store.requeue([run.id], SIGN)
    again = await take_one(store)
    assert await store.write_output([written(again, b"3")]) == [OutputKept(3, 3, 1)]
    await write(store, done(again))
    found = await (await reopen()).output(run.id)
    assert [(chunk.body, chunk.lease) for chunk in found] == [(b"1", run.lease), (b"2", run.lease), (b"3", again.lease)]


@pytest.mark.parametrize("ending", [done, dead])
async def test_output_goes_with_its_job(store: Store, clock: ManualClock, ending: Ending) -> None:
    """It goes when the job is removed: a new job with the same id has none."""
    run = await running(store)
    await store.write_output([written(run, b"1")])
    await write(store, ending(run))
    clock.advance(100)
    assert await store.prune(Retention(done=50, dead=50, cancelled=50), {}, 10) == 1
    assert await store.output(run.id) == []
    await add(store, id=run.id)
    assert await store.output(run.id) == []
    again = await take_one(store)
    assert await store.write_output([written(again, b"2")]) == [OutputKept(1, 1, 1)]


async def test_output_of_a_job_that_is_not_kept_goes_when_it_is_done(store: Store) -> None:
    """It goes when the job is removed: a new job with the same id has none."""
    run = await running(store)
    await store.write_output([written(run, b"1")])
    await write(store, done(run, keep=False))
    assert await store.output(run.id) == []
    await add(store, id=run.id)
    again = await take_one(store)
    assert await store.write_output([written(again, b"2")]) == [OutputKept(1, 1, 1)]
