"""Output of handlers: written in batches, in order, before the outcome, fenced and bounded."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from hawser import Context, Fixed, Hawser, LeaseLost, OutputFull, Retention, State
from hawser.errors import ConfigError, InvalidJob
from hawser.handler.output import RunOutput
from hawser.job import Claimed
from hawser.store import MAX_CHUNK, MAX_CHUNKS, MAX_OUTPUT, NewOutput, OutputKept
from hawser.stores.memory import MemoryStore
from hawser.testing import AppUnderTest
from hawser.testing.fault import Fault
from hawser.testing.faults import FaultyStore
from tests.worker.conftest import ended, working
from tests.worker.processes import eventually, fleet
from tests.worker.tasks import isolated_output

SOON = Fixed(every=0.01, jitter="none")


class Counting(MemoryStore):
    """Counts the calls that write output, and keeps their order among the settlements."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def write_output(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        self.calls.append("write")
        return await super().write_output(outputs)

    async def settle(self, settlements: Any) -> Any:
        self.calls.append("settle")
        return await super().settle(settlements)


async def values(app: Hawser, id: str) -> list[Any]:
    return [chunk.value for chunk in await app.aoutput(id)]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_thousand_chunks_are_a_few_writes_in_order_and_before_the_outcome(kind: str):
    store = Counting()
    app = Hawser(store)

    async def talk_async(ctx: Context) -> None:
        for n in range(1_000):
            ctx.write(n)
            if n % 100 == 0:
                await asyncio.sleep(0)

    def talk(ctx: Context) -> None:
        for n in range(1_000):
            ctx.write(n)

    task = app.task(talk_async if kind == "async" else talk)
    async with working(app):
        handle = await task.aenqueue()
        assert (await ended(app, handle.id)).state is State.DONE
    assert await values(app, handle.id) == list(range(1_000))
    assert store.calls.count("write") < 20
    assert "write" not in store.calls[store.calls.index("settle") :]


async def test_output_can_be_read_while_the_job_runs(app: Hawser):
    go_on = asyncio.Event()

    @app.task
    async def talk(ctx: Context) -> None:
        ctx.write("first")
        await go_on.wait()
        ctx.write({"second": True})

    async with working(app):
        handle = await talk.aenqueue()
        async with asyncio.timeout(20):
            while await values(app, handle.id) != ["first"]:
                await asyncio.sleep(0.01)
        assert (await app.aget(handle.id)).state is State.RUNNING
        go_on.set()
        await ended(app, handle.id)
    assert await values(app, handle.id) == ["first", {"second": True}]
    [last] = await app.aoutput(handle.id, after=1)
    assert (last.number, last.attempt, last.lease) == (2, 1, 1)
    with pytest.raises(ConfigError, match="after: -1"):
        await app.aoutput(handle.id, after=-1)


async def test_a_retry_goes_on_behind_what_is_there_and_says_whose_it_is(app: Hawser):
    @app.task(max_attempts=2, backoff=SOON)
    async def talk(ctx: Context) -> None:
        ctx.write(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise OSError("gone")

    async with working(app):
        handle = await talk.aenqueue()
        await ended(app, handle.id)
    assert [(chunk.value, chunk.attempt) for chunk in await app.aoutput(handle.id)] == [("attempt 1", 1), ("attempt 2", 2)]


async def test_jobs_that_are_not_kept_leave_no_output(app: Hawser):
    store = Counting()
    app = Hawser(store)

    @app.task(retention=Retention(done=0))
    async def talk(ctx: Context) -> None:
        ctx.write("gone soon")

    async with working(app):
        handle = await talk.aenqueue()
        async with asyncio.timeout(20):
            while "settle" not in store.calls:
                await asyncio.sleep(0.01)
    assert store.calls == ["write", "settle"]
    assert await store.output(handle.id) == []


async def test_a_job_that_writes_nothing_makes_no_write():
    store = Counting()
    app = Hawser(store)

    @app.task
    async def quiet(ctx: Context) -> None:
        pass

    async with working(app):
        handle = await quiet.aenqueue()
        await ended(app, handle.id)
    assert store.calls == ["settle"]


async def test_output_waits_while_the_store_is_away(app: Hawser):
    store = FaultyStore(MemoryStore())
    app = Hawser(store)

    @app.task
    async def talk(ctx: Context) -> str:
        store.next("write_output", Fault.REFUSE)
        store.next("write_output", Fault.LOSE_REPLY)
        ctx.write("kept once")
        return "fine"

    async with working(app):
        handle = await talk.aenqueue()
        assert (await ended(app, handle.id, 30)).result == "fine"
    assert await values(app, handle.id) == ["kept once"]


async def test_what_is_too_much_is_refused_with_both_bounds(app: Hawser):
    told: list[str] = []

    @app.task
    async def talk(ctx: Context) -> int:
        with pytest.raises(InvalidJob, match="chunk: "):
            ctx.write("x" * MAX_CHUNK)
        with pytest.raises(InvalidJob, match="chunk"):
            ctx.write(object())
        large, count = "x" * (MAX_CHUNK - 2), 0
        try:
            while True:
                ctx.write(large)
                count += 1
        except OutputFull as error:
            told.append(str(error))
        return count

    async with working(app):
        handle = await talk.aenqueue()
        assert (await ended(app, handle.id)).result == MAX_OUTPUT // MAX_CHUNK
    assert "1,024 KiB" in told[0]
    assert "10,000 chunks of at most 64 KiB" in told[0]
    assert len(await app.aoutput(handle.id)) == MAX_OUTPUT // MAX_CHUNK


async def test_a_run_that_lost_its_lease_cannot_write():
    store = MemoryStore()
    app = Hawser(store)
    refused = asyncio.Event()

    @app.task
    async def talk(ctx: Context) -> None:
        store._rows[ctx.job.id].lease += 1  # as a reclaim and a claim elsewhere would
        try:
            while True:
                ctx.write("stale")
                await asyncio.sleep(0.05)
        except LeaseLost:
            refused.set()

    async with working(app):
        handle = await talk.aenqueue()
        await asyncio.wait_for(refused.wait(), 20)
    assert await store.output(handle.id) == []


def test_a_later_run_learns_how_much_room_is_left():
    output = RunOutput()
    job = claimed(lease=2)
    assert output.add(b"1") is True
    assert output.add(b"2") is False, "they are told once"
    sent = output.pending(job)
    assert sent == NewOutput(id=job.id, lease=2, attempt=1, first=0, chunks=(b"1", b"2"))
    assert output.add(b"3") is True
    output.answered(sent, OutputKept(12, MAX_OUTPUT - 10, 2))
    assert output.pending(job) == NewOutput(id=job.id, lease=2, attempt=1, first=2, chunks=(b"3",))
    output.add(b"123456789")
    with pytest.raises(OutputFull):
        output.add(b"4")


def test_what_the_store_had_no_room_for_is_not_sent_again():
    output = RunOutput()
    job = claimed(lease=2)
    output.add(b"1")
    output.add(b"2")
    sent = output.pending(job)
    assert sent is not None
    output.answered(sent, OutputKept(MAX_CHUNKS, 20_000, 1))
    assert output.cut
    assert output.pending(job) is None
    with pytest.raises(OutputFull):
        output.add(b"3")


def test_the_answer_to_an_older_write_changes_nothing():
    output = RunOutput()
    job = claimed()
    output.add(b"1")
    first = output.pending(job)
    output.add(b"2")
    both = output.pending(job)
    assert first is not None
    assert both is not None
    output.answered(both, OutputKept(2, 2, 2))
    output.answered(first, OutputKept(2, 2, 2))
    assert output.pending(job) is None
    assert not output.cut
    output.add(b"3")
    after = output.pending(job)
    assert after is not None
    assert (after.first, after.chunks) == (2, (b"3",))


def claimed(lease: int = 1) -> Claimed:
    return Claimed(
        id="01900000-0000-7000-8000-000000000000",
        task="talk",
        queue="default",
        body=b"{}",
        priority=5,
        attempt=1,
        max_attempts=1,
        timeout=60,
        lease=lease,
        run_at_us=0,
        enqueued_at_us=0,
    )


def test_an_isolated_handler_writes_and_what_it_wrote_before_it_died_is_kept(tmp_path):
    with fleet(tmp_path) as workers:
        workers.start("--slots", "2")
        app = Hawser(workers.url)
        [handle] = app._connection.put([isolated_output.job()])
        eventually(lambda: app.get(handle.id).state.finished, 60)
        assert app.get(handle.id).state is State.DONE
        told = [(chunk.value, chunk.attempt) for chunk in app.output(handle.id)]
        assert told == [("before the crash", 1), ("again", 2), ("the end", 2)]
        app.close()


def test_output_in_tests_is_there_when_the_job_has_run():
    app = AppUnderTest()

    @app.task
    def talk(ctx: Context) -> None:
        ctx.write("hello")

    id = talk.enqueue().id
    app.drain()
    assert [chunk.value for chunk in app.output(id)] == ["hello"]
    talk()  # called like a function: there is no job, so nothing is kept
