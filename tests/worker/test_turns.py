"""The parts of a worker, one turn at a time: no part runs by itself here, and no test waits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hawser import Context, Hawser, State
from hawser.errors import StoreUnavailable
from hawser.outcome import Done, Failed, Failure
from hawser.store import Share, Store
from hawser.supervisor.extender import Extender
from hawser.worker.board import How, Says
from hawser.worker.broadcast import BROADCAST_BYTES, Broadcast
from hawser.worker.claimer import Claimer
from hawser.worker.demand import Demand
from hawser.worker.executor import Executor
from hawser.worker.isolates import Isolates
from hawser.worker.options import checked
from hawser.worker.policies import Policies
from hawser.worker.progress_writer import GATHER, UNTIL_ASKED, ProgressWriter
from hawser.worker.refusals import Refusals
from hawser.worker.run import Run, Stop
from hawser.worker.runners import Runners
from hawser.worker.served import ServedQueues
from hawser.worker.settler import OutcomeWriter, Settler
from hawser.worker.slots import Closing, Slots
from hawser.worker.watchdog import DEADLINES_LOOK_EVERY_S, LOOK_IDLE_EVERY, STOP_WITHIN, Watchdog, reason_to_stop
from tests.worker.conftest import Heard, board_and_reader

LEASE = 30.0


class Parts:
    """All parts of a worker on one store. None is started: each test takes the turns that it is about."""

    def __init__(self, app: Hawser, store: Store, heard: Heard, slots: int = 2) -> None:
        self.options = checked(slots=slots, lease=LEASE)
        self.now: float | None = None
        self.stop = asyncio.Event()
        self.broadcast = Broadcast(bytearray(BROADCAST_BYTES))
        self.store = store
        self.board, self.reader = board_and_reader(self.options.cells)
        closing, policies = Closing(self.stop, self.broadcast), Policies(store)
        refusals = Refusals(store, "w", app.tasks, ["default"], 3600)
        self.slots = Slots(slots, LEASE, self.board, app.tasks, closing)
        self.runners = Runners(app.tasks, self.board, Isolates(None, None, 1), policies)
        self.settler = Settler(store, self.slots, heard)
        self.progress = ProgressWriter(store, "w", LEASE, self.clock)
        self.executor = Executor(app.tasks, self.slots, self.runners, self.settler, self.progress, policies, refusals, heard)
        demand = Demand(ServedQueues(store, self.options.queues, ()), policies, refusals)
        self.claimer = Claimer(store, "w", self.options, self.slots, self.executor, demand, heard)
        self.watchdog = Watchdog(self.slots, self.executor, self.runners, self.board, closing, self.broadcast, heard, self.clock)
        self.extender = Extender(store, {"w": self.reader}, LEASE, self.clock)

    def clock(self) -> float:
        return asyncio.get_running_loop().time() if self.now is None else self.now

    @property
    def run(self) -> Run:
        [run] = self.slots.runs
        return run

    async def settled(self) -> None:
        """Write what is decided."""
        await self.settler._plain.turn()
        await self.settler._chained.turn()


@pytest.fixture
async def parts(app: Hawser, heard: Heard) -> Callable[..., Any]:
    async def make(**options: Any) -> Parts:
        return Parts(app, await app.store(), heard, **options)

    return make


async def steps(count: int = 3) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


# The claimer.


async def test_a_turn_of_the_claimer_claims_what_fits_and_starts_it(app: Hawser, parts: Any):
    @app.task
    async def waits() -> None:
        await asyncio.Event().wait()

    handles = [await waits.aenqueue() for _ in range(3)]
    worker = await parts()
    assert await worker.claimer.turn() == 0.0
    assert [run.job.id for run in worker.slots.runs] == [handle.id for handle in handles[:2]]
    assert worker.slots.free == 0
    assert (await app.aget(handles[2].id)).state is State.READY
    for run in worker.slots.runs:
        assert run.work is not None
        run.work.cancel()


async def test_a_claimer_without_a_free_slot_goes_on_when_one_is_freed_and_asks_the_store_nothing(app: Hawser, parts: Any):
    go = asyncio.Event()

    @app.task
    async def waits() -> None:
        await go.wait()

    await waits.aenqueue()
    worker = await parts(slots=1)
    await worker.claimer.turn()
    worker.store.claim = None  # a claim would fail
    turn = asyncio.ensure_future(worker.claimer.turn())
    await steps()
    assert not turn.done()
    go.set()
    await turn


async def test_a_claimer_that_is_to_stop_claims_nothing(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    worker = await parts()
    worker.broadcast.close()
    assert await worker.claimer.turn() > 60
    assert not worker.slots.runs


async def test_what_was_claimed_before_the_end_is_handed_back_and_not_begun(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    handle = await work.aenqueue()
    worker = await parts()
    jobs = await worker.store.claim([Share("default")], 1, "w", LEASE)
    worker.stop.set()
    worker.executor.accept(jobs, worker.clock())
    assert not worker.slots.runs
    await worker.settled()
    job = await app.aget(handle.id)
    assert (job.state, job.attempt, job.returned) == (State.READY, 0, 1)


async def test_what_was_claimed_by_a_process_that_was_frozen_since_is_handed_back(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    handle = await work.aenqueue()
    worker = await parts()
    jobs = await worker.store.claim([Share("default")], 1, "w", LEASE)
    worker.executor.accept(jobs, worker.clock() - LEASE)
    assert not worker.slots.runs
    await worker.settled()
    assert (await app.aget(handle.id)).state is State.READY


async def test_what_a_child_process_declines_while_a_claim_is_under_way_is_not_offered_here_again(app: Hawser):
    """The claim was sent before it was declined, and would bring it once more if it were ready by then."""

    @app.task
    async def resize() -> None: ...

    handle = await resize.aenqueue()
    worker = Parts(app, await app.store(), Heard())
    run = await one_run(app, worker)
    worker.slots.take(run)
    sent, late, claim = asyncio.Event(), asyncio.Event(), worker.store.claim

    async def on_a_long_way(*asked: Any) -> Any:
        sent.set()
        await late.wait()
        return await claim(*asked)

    worker.store.claim = on_a_long_way  # type: ignore[method-assign,assignment]
    turn = asyncio.ensure_future(worker.claimer.turn())
    await sent.wait()
    run.misfit = "it has a width"
    worker.executor.decided(run, Failed(Failure("it has a width"), 0.0), ())
    await worker.settled()
    late.set()
    worker.claimer.stop()
    await turn
    await worker.settled()
    assert worker.slots.idle
    assert not await claim([Share("default")], 1, "w", LEASE, {}, worker.claimer._demand.leave)
    job = await app.aget(handle.id)
    assert (job.lease, job.attempt, job.reason) == (1, 0, "worker w cannot run it: it has a width")


# The settler.


async def one_run(app: Hawser, worker: Parts) -> Run:
    """A run that has ended; its outcome is still to be decided."""
    [job] = await worker.store.claim([Share("default")], 1, "w", LEASE)
    return worker.slots.admit(job, app.tasks[job.task], worker.clock(), worker.executor)


async def test_a_turn_of_the_settler_writes_all_that_came_since_the_last(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    handles = [await work.aenqueue() for _ in range(2)]
    worker = await parts()
    runs = [await one_run(app, worker) for _ in handles]
    calls = []
    settle = worker.store.settle

    async def counted(settlements: Any) -> Any:
        calls.append(len(settlements))
        return await settle(settlements)

    worker.store.settle = counted
    for run in runs:
        worker.settler.add(run, Done())
    assert worker.slots.free == 2, "two outcomes wait: the board has cells for two more"
    await worker.settled()
    assert calls == [2]
    assert [(await app.aget(handle.id)).state for handle in handles] == [State.DONE, State.DONE]
    assert worker.slots.idle


async def test_while_the_store_is_away_outcomes_wait_in_their_order(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    handle = await work.aenqueue()
    worker = await parts()
    run = await one_run(app, worker)
    settle = worker.store.settle

    async def away(settlements: Any) -> Any:
        raise StoreUnavailable("away")

    worker.store.settle = away
    worker.settler.add(run, Done())
    writer: OutcomeWriter = worker.settler._plain
    assert await writer.turn() > 0
    assert not worker.slots.idle, "its lease is kept meanwhile"
    worker.store.settle = settle
    assert await writer.turn() == 0
    assert (await app.aget(handle.id)).state is State.DONE
    assert worker.slots.idle


async def test_an_outcome_that_cannot_be_written_costs_only_itself(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    handles = [await work.aenqueue() for _ in range(3)]
    worker = await parts()
    runs = [await one_run(app, worker) for _ in handles]
    settle = worker.store.settle

    async def hates_the_second(settlements: Any) -> Any:
        if any(settlement.id == handles[1].id for settlement in settlements):
            raise ValueError("no such thing")
        return await settle(settlements)

    worker.store.settle = hates_the_second
    for run in runs:
        worker.settler.add(run, Done())
    for _ in range(4):
        await worker.settled()
    assert [(await app.aget(handle.id)).state for handle in handles] == [State.DONE, State.RUNNING, State.DONE]
    assert worker.slots.idle, "the place of the second on the board is free: its lease runs out"


# The extender and the progress writer.


async def test_a_turn_of_the_extender_extends_what_has_begun_and_the_run_hears_of_it(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    worker = await parts()
    run = await one_run(app, worker)
    began = worker.clock()
    assert run.begin(How.LOOP)
    worker.now = began + LEASE / 3 + 1
    await worker.extender.turn()
    assert run.may_write(began + LEASE + 1), "a third of the lease was over: it was extended"
    assert not run.may_write(began + 2 * LEASE)


async def test_the_progress_writer_sends_the_last_word_of_a_run_once_and_not_before_its_time(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    worker = await parts()
    run = await one_run(app, worker)
    calls: list[list[Any]] = []
    extend = worker.store.extend

    async def counted(name: str, refs: Any, lease_for: float) -> Any:
        calls.append([ref.progress for ref in refs])
        return await extend(name, refs, lease_for)

    worker.store.extend = counted
    worker.now = began = worker.clock()
    for body in (b"1", b"2", b"3"):
        run.progress(body)
    await steps()
    assert await worker.progress.turn() == UNTIL_ASKED
    assert calls == [[b"3"]]
    run.progress(b"4")
    await steps()
    assert 0 < await worker.progress.turn() <= GATHER
    assert len(calls) == 1, "it was sent a moment ago"
    worker.now = began + GATHER
    await worker.progress.turn()
    assert calls == [[b"3"], [b"4"]]


async def test_what_the_progress_writer_could_not_send_goes_along_next_time_with_the_longest_wish(app: Hawser, parts: Any):
    @app.task(timeout=600)
    async def work() -> None: ...

    await work.aenqueue()
    worker = await parts()
    run = await one_run(app, worker)
    extend = worker.store.extend

    async def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    worker.store.extend = away
    run.extend(100)
    run.extend(50)
    await steps()
    with pytest.raises(StoreUnavailable):
        await worker.progress.turn()
    worker.store.extend = extend
    sent = worker.clock()
    await worker.progress.turn()
    assert run.may_write(sent + 90)


# The watchdog.


async def test_the_watchdog_ends_a_run_whose_time_is_up(app: Hawser, parts: Any):
    @app.task(timeout=10, max_attempts=1)
    async def hangs() -> None:
        await asyncio.Event().wait()

    handle = await hangs.aenqueue()
    worker = await parts()
    await worker.claimer.turn()
    await steps()
    began = worker.clock()
    worker.now = began + 5
    assert await worker.watchdog.turn() == DEADLINES_LOOK_EVERY_S
    assert worker.run.stop is None
    worker.now = began + 11
    await worker.watchdog.turn()
    await steps()
    worker.now += DEADLINES_LOOK_EVERY_S
    assert await worker.watchdog.turn() == LOOK_IDLE_EVERY
    await worker.settled()
    job = await app.aget(handle.id)
    assert (job.state, str(job.errors[0])) == (State.DEAD, "timeout: the attempt took longer than 10 s")


async def test_the_watchdog_does_not_look_again_at_once_when_short_jobs_come_and_go(app: Hawser, parts: Any):
    """Each claim that finds the process idle begins a turn: it must not cost a look at every run."""

    @app.task
    async def hangs() -> None:
        await asyncio.Event().wait()

    worker = await parts()
    worker.now = began = worker.clock()
    await worker.watchdog.turn()
    await hangs.aenqueue()
    await worker.claimer.turn()
    await steps()
    worker.now = began + DEADLINES_LOOK_EVERY_S / 2
    assert await worker.watchdog.turn() == pytest.approx(DEADLINES_LOOK_EVERY_S / 2)
    assert worker.reader.running == 0, "not looked yet"
    worker.now = began + DEADLINES_LOOK_EVERY_S
    assert await worker.watchdog.turn() == DEADLINES_LOOK_EVERY_S
    assert worker.reader.running == 1


async def test_the_watchdog_gives_up_a_coroutine_that_swallows_its_cancellation(app: Hawser, parts: Any):
    go = asyncio.Event()

    @app.task(timeout=10, max_attempts=1)
    async def stubborn() -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    handle = await stubborn.aenqueue()
    worker = await parts()
    await worker.claimer.turn()
    await steps()
    worker.now = worker.clock() + 11
    await worker.watchdog.turn()
    await steps()
    worker.now = worker.run.stopped_at + STOP_WITHIN + 0.1
    await worker.watchdog.turn()
    assert (len(worker.slots.runs), worker.slots.stuck, worker.reader.stuck) == (1, 1, 1), "it keeps its slot"
    await worker.settled()
    assert (await app.aget(handle.id)).state is State.DEAD
    go.set()
    await steps()
    assert (len(worker.slots.runs), worker.slots.stuck) == (0, 0)


async def test_the_watchdog_ends_a_run_whose_lease_is_gone_and_nothing_is_written(app: Hawser, parts: Any, heard: Heard):
    @app.task
    async def hangs() -> None:
        await asyncio.Event().wait()

    handle = await hangs.aenqueue()
    worker = await parts()
    await worker.claimer.turn()
    await steps()
    worker.now = worker.clock() + LEASE
    await worker.watchdog.turn()
    await steps()
    assert (not worker.slots.runs, worker.slots.idle, heard.runs_lost) == (True, True, 1)
    assert (await app.aget(handle.id)).state is State.RUNNING, "the store will reclaim it"


async def test_the_watchdog_passes_a_cancel_on_that_the_extender_has_heard_of(app: Hawser, parts: Any):
    @app.task
    async def hangs(ctx: Context) -> None:
        await asyncio.Event().wait()

    handle = await hangs.aenqueue()
    worker = await parts()
    await worker.claimer.turn()
    await steps()
    await worker.watchdog.turn()
    await app.acancel(handle.id)
    await worker.extender.turn()
    worker.now = worker.clock() + DEADLINES_LOOK_EVERY_S
    await worker.watchdog.turn()
    await steps()
    await worker.settled()
    assert (await app.aget(handle.id)).state is State.CANCELLED


async def test_the_watchdog_hears_which_tasks_are_to_run_apart(app: Hawser, parts: Any):
    @app.task
    async def work() -> None: ...

    worker = await parts()
    assert worker.executor.room() == {}
    worker.broadcast.write(["work"])
    await worker.watchdog.turn()
    assert "work" in worker.executor.room()


@pytest.mark.parametrize(("stop", "expected"), [(None, Stop.TIMEOUT), (Stop.CANCEL, Stop.TIMEOUT), (Stop.DRAIN, None)])
async def test_a_run_is_told_once_why_it_is_to_stop_and_a_cancelled_one_may_still_time_out(
    app: Hawser, parts: Any, stop: Stop | None, expected: Stop | None
):
    @app.task(timeout=10)
    async def work() -> None: ...

    await work.aenqueue()
    worker = await parts()
    run = await one_run(app, worker)
    run.start_clock(worker.clock())
    run.stop = stop
    assert reason_to_stop(run, worker.clock() + 1) is None
    assert reason_to_stop(run, worker.clock() + 10.5) is expected


# Slots and the right to write.


async def test_slots_know_what_runs_and_what_else_fits(app: Hawser, parts: Any):
    @app.task(concurrency=2)
    async def limited() -> None: ...

    for _ in range(2):
        await limited.aenqueue()
    worker = await parts(slots=3)
    runs = [await one_run(app, worker) for _ in range(2)]
    assert (worker.slots.free, worker.slots.room()) == (3, {"limited": 2})
    for run in runs:
        worker.slots.take(run)
    assert (worker.slots.free, worker.slots.room(), dict(worker.slots.by_queue)) == (1, {"limited": 0}, {"default": 2})
    seen = worker.slots.changes.count
    worker.slots.leave(runs[0])
    assert (worker.slots.free, worker.slots.room()) == (2, {"limited": 1})
    assert worker.slots.changes.count == seen + 1
    worker.slots.keep(runs[1])
    assert worker.slots.stuck == 1
    worker.slots.leave(runs[1])
    assert (worker.slots.free, worker.slots.stuck) == (3, 0)
    assert not worker.slots.idle, "their outcomes are not written"
    for run in runs:
        worker.slots.settled([run])
    assert worker.slots.idle


async def test_a_run_may_write_until_shortly_before_its_lease_ends_and_not_when_the_store_says_that_it_is_lost(
    app: Hawser, parts: Any
):
    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    worker = await parts()
    sent = worker.clock()
    run = await one_run(app, worker)
    assert run.may_write(sent + LEASE - 1.5)
    assert not run.may_write(sent + LEASE)
    [held] = worker.reader.held()
    worker.reader.answer(held, Says.LOST, 0.0)
    assert not run.may_write(sent)


async def test_what_a_handler_raised_after_its_lease_was_gone_is_not_written(app: Hawser, parts: Any, heard: Heard):
    @app.task
    async def work() -> None: ...

    handle = await work.aenqueue()
    worker = await parts()
    [job] = await worker.store.claim([Share("default")], 1, "w", LEASE)
    run = worker.slots.admit(job, app.tasks["work"], worker.clock() - LEASE, worker.executor)
    worker.slots.take(run)
    worker.executor.ended(run, ValueError("late"), failed=True)
    await worker.settled()
    assert heard.runs_lost == 1
    assert (await app.aget(handle.id)).state is State.RUNNING
    assert worker.slots.idle
