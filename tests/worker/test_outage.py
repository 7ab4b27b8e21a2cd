"""The store is away: what was decided before a lease is gone is written in the end, what is decided after it is not."""

import asyncio
import logging
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from hawser import Hawser, State
from hawser.cycle import Cycle, Unasked
from hawser.errors import StoreUnavailable
from hawser.job import NewJob
from hawser.store import Share
from hawser.stores.memory import MemoryStore
from hawser.supervisor.extender import Extender
from hawser.telemetry.events import Events
from hawser.testing import ManualClock
from hawser.upkeep import reclaimer
from hawser.upkeep.reclaimer import Reclaimer
from hawser.value.ids import new_id
from hawser.worker import worker
from hawser.worker.board import Board, How, Says
from hawser.worker.run import margin
from tests.worker.conftest import Heard, board_and_reader, ended, until, working

WRITES = ("claim", "settle", "extend", "reclaim", "beat", "asked_to_stop")


@contextmanager
def away(store, *methods: str):
    """These calls fail, and say so."""

    async def fail(*_, **__):
        raise StoreUnavailable("it is away; nothing was written")

    right = {name: getattr(store, name) for name in methods}
    for name in methods:
        setattr(store, name, fail)
    try:
        yield
    finally:
        for name in methods:
            setattr(store, name, right[name])


async def test_what_ended_while_the_store_was_away_is_written_long_after_its_lease(app: Hawser, heard: Heard):
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task(max_attempts=1)
    async def work() -> int:
        begun.set()
        await go_on.wait()
        return 17

    store = await app.store()
    handle = await work.aenqueue()
    async with working(app, heard, lease=0.5):
        await begun.wait()
        with away(store, *WRITES):
            go_on.set()
            job = await until(lambda job: job.lease_until is None or job.lease_until < datetime.now(UTC), app, handle.id)
            assert job.state is State.RUNNING
        job = await ended(app, handle.id)
    assert (job.state, job.result, job.attempt) == (State.DONE, 17, 1)
    assert (heard.given_up, heard.stale, heard.runs_lost) == (0, 0, 0)


async def test_what_ends_after_its_lease_is_gone_is_not_written_although_nobody_looked_before(app: Hawser, heard: Heard):
    attempts = []

    @app.task(max_attempts=2)
    async def block() -> str:
        attempts.append(time.monotonic())
        if len(attempts) == 1:
            time.sleep(1.0)  # twice the lease: nothing else runs on this loop meanwhile
            return "too late"
        return "in time"

    store = await app.store()
    handle = await block.aenqueue()
    with away(store, "extend"):
        async with working(app, heard, lease=0.5):
            await until(lambda job: job.attempt == 2 or job.state.finished, app, handle.id, 20)
            job = await ended(app, handle.id)
    assert (job.state, job.result, job.attempt) == (State.DONE, "in time", 2)
    assert heard.runs_lost == 1


async def test_a_drain_gives_up_what_cannot_be_written(app: Hawser, heard: Heard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "WRITE_WITHIN", 0.2)
    done = asyncio.Event()

    @app.task
    async def work() -> None:
        done.set()

    store = await app.store()
    await work.aenqueue()
    with away(store, "settle"):
        async with working(app, heard, drain_timeout=0.5):
            await done.wait()
            began = time.monotonic()
        assert time.monotonic() - began < 5
    assert heard.given_up == 1


class Watch:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def a_run(store: MemoryStore, board: Board, watch: Watch) -> int:
    await store.enqueue([NewJob(id=new_id(), task="work", body=b"{}")])
    [job] = await store.claim([Share("default")], 1, "one", 3)
    cell = board.take(job.id, job.lease, watch.now, watch.now + job.timeout + 5)
    board.start(cell, How.LOOP)
    return cell


async def test_a_lease_that_is_extended_late_is_held_again_and_counted_from_when_that_was_asked():
    clock, watch = ManualClock(), Watch()
    store, (board, reader) = MemoryStore(clock=clock), board_and_reader(1)
    extender = Extender(store, {"one": reader}, 3.0, watch)
    cell = await a_run(store, board, watch)
    clock.advance(60)
    watch.now += 60
    await extender.turn()
    assert board.said(cell) == (Says.HELD, watch.now + 3 - margin(3))


async def test_the_lease_of_a_run_that_is_given_up_is_not_held_again():
    clock, watch = ManualClock(), Watch()
    store, (board, reader) = MemoryStore(clock=clock), board_and_reader(1)
    extender = Extender(store, {"one": reader}, 3.0, watch)
    cell = await a_run(store, board, watch)
    board.abandon(cell)
    clock.advance(60)
    watch.now += 60
    await extender.turn()
    assert board.said(cell)[0] is Says.NOTHING
    assert len(await store.reclaim(10)) == 1


async def test_that_the_store_is_back_is_said_when_it_has_answered(caplog: pytest.LogCaptureFixture):
    turns = iter([None, Unasked(0.0), Unasked(0.0), 0.0])
    said: list[int] = []
    over = asyncio.Event()

    async def turn() -> float:
        said.append(caplog.text.count("the store is back"))
        answer = next(turns, 3600.0)
        if answer is None:
            raise StoreUnavailable("away")
        if answer:
            over.set()
        return answer

    caplog.set_level(logging.WARNING, "hawser.worker")
    cycle = Cycle("part", turn)
    cycle.start()
    await over.wait()
    await cycle.stop()
    assert said == [0, 0, 0, 0, 1]


async def lost_run(store: MemoryStore, clock: ManualClock) -> None:
    await store.enqueue([NewJob(id=new_id(), task="work", body=b"{}")])
    await store.claim([Share("default")], 1, "w", 10)
    clock.advance(11)


async def test_after_the_store_was_away_the_holders_of_runs_have_time_to_say_so():
    clock, watch = ManualClock(), Watch()
    store = MemoryStore(clock=clock)
    part = Reclaimer(store, 2.0, Events(), watch)
    assert await part.turn() <= 2.0
    await lost_run(store, clock)
    with away(store, "reclaim"):
        watch.now += 2
        with pytest.raises(StoreUnavailable):
            await part.turn()
        watch.now += 5
        with pytest.raises(StoreUnavailable):
            await part.turn()
    assert await part.turn() == reclaimer.HOLD_OFF
    assert (await store.stats()).running == 1
    watch.now += reclaimer.HOLD_OFF
    await part.turn()
    assert (await store.stats()).running == 0


async def test_after_a_short_outage_they_have_a_short_time():
    """Also when it was too short to be noticed by the time between two answers."""
    clock, watch = ManualClock(), Watch()
    store = MemoryStore(clock=clock)
    part = Reclaimer(store, 2.0, Events(), watch)
    await part.turn()
    await lost_run(store, clock)
    watch.now += 1
    with away(store, "reclaim"), pytest.raises(StoreUnavailable):
        await part.turn()
    watch.now += 0.5
    wait = await part.turn()
    assert 1.5 < wait < reclaimer.HOLD_OFF
    assert (await store.stats()).running == 1
    watch.now += wait
    await part.turn()
    assert (await store.stats()).running == 0


async def test_runs_are_taken_back_in_the_end_although_the_store_is_away_again_and_again():
    clock, watch = ManualClock(), Watch()
    store = MemoryStore(clock=clock)
    part = Reclaimer(store, 2.0, Events(), watch)
    await lost_run(store, clock)
    for turns in range(1, 10):  # noqa: B007  # told below
        watch.now += 60
        await part.turn()
        if not (await store.stats()).running:
            break
    assert turns == reclaimer.MOST_HOLDS + 1


async def test_a_store_that_answers_in_time_is_never_held_off():
    clock, watch = ManualClock(), Watch()
    store = MemoryStore(clock=clock)
    part = Reclaimer(store, 2.0, Events(), watch)
    for _ in range(20):
        watch.now += await part.turn()
        await lost_run(store, clock)
        watch.now += await part.turn()
        assert (await store.stats()).running == 0
