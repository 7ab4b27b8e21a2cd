"""Runs claimed jobs in slots and decides their outcomes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hawser.backoff import Backoff
from hawser.context import Context
from hawser.errors import HawserError
from hawser.job import Claimed, NewJob
from hawser.outcome import Cancelled, Done, Failed, Failure, Outcome, Released, Snoozed, decide, failure_of
from hawser.policy import backoff_of
from hawser.store import SETTLE_GRACE
from hawser.task import Task
from hawser.telemetry.events import Events, tell
from hawser.telemetry.reporter import Reporter
from hawser.worker.board import Board, How, Says
from hawser.worker.courier import Courier
from hawser.worker.headcount import Headcount
from hawser.worker.isolates import Isolate, Isolates
from hawser.worker.keeper import margin
from hawser.worker.policies import Policies
from hawser.worker.run import Run, Stop
from hawser.worker.settler import Settler
from hawser.worker.threads import Ended, Threads
from hawser.worker.watched import watched

_logger = logging.getLogger("hawser.worker")

UNKNOWN_AFTER = 60.0
"""Seconds for which a job of an unknown task is put aside: another worker, or the next deploy, may know it."""

STOP_WITHIN = 2.0
"""Seconds that a cancelled coroutine has to end before it counts as stuck. Less than the grace of a lease."""

CLEAN_UP = 0.5
"""The same at a drain under a supervisor, which kills a process soon after its deadline."""

WAIT_WITHIN = SETTLE_GRACE / 2
"""Seconds that a claimed job waits here, for a slot or a child process. The lease ends with the claim's time, so that one which
waited for longer could not have all of its timeout: it is handed back instead."""

PUT_ASIDE = 3.0
"""Seconds for which a job is put aside that found no child process, here at least."""

LOOK_EVERY = 0.25
"""Seconds between looks at deadlines and at what the keeper says."""

LOOK_IDLE = 2.0
"""Seconds between looks while there is nothing to look at; the first job that is claimed ends that wait."""


class Executor:
    """So many slots; what is claimed beyond them waits here, briefly, in order."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        board: Board,
        settler: Settler,
        courier: Courier,
        isolates: Isolates,
        policies: Policies,
        *,
        slots: int,
        lease: float,
        events: Events,
        open: Callable[[], bool],
        wake_up: Callable[[], None],
    ) -> None:
        """Nothing is started once `open` says no; `wake_up` is called when there is something to look at again."""
        self._tasks = tasks
        self._board = board
        self._settler = settler
        self._courier = courier
        self._isolates = isolates
        self._policies = policies
        self._slots = slots
        self._lease = lease
        self._events = events
        self.open = open
        self._wake_up = wake_up
        self._reporter = Reporter()
        self._threads = Threads(self._thread_ended)
        self._waiting: deque[Run] = deque()
        self._apart: deque[Run] = deque()
        isolates.freed = self._isolate_freed
        self._filling = False
        self._dangerous: frozenset[str] = frozenset()
        self._unknown: set[str] = set()
        self._running: dict[Run, None] = {}
        self.heads = Headcount(tasks)
        self._isolated_tasks = [name for name, task in tasks.items() if task.options.isolate]
        self._loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        """Set whenever a slot becomes free."""
        self.isolate_freed = asyncio.Event()
        """Set whenever a run that needs a child process may have become possible."""
        self.finished = 0
        """Runs that ended since the start."""
        self.returned = 0
        """Jobs that were handed back, of those that had begun and those that had not."""
        self.stuck = 0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def free(self) -> int:
        """Slots that nobody waits for. Who waits for a child process holds none: others go on meanwhile."""
        return self._slots - len(self._running) - len(self._waiting)

    def room(self) -> dict[str, int]:
        """Of tasks with a limit of their own, and of isolated ones: how many more may run."""
        room = self.heads.room()
        if self._isolated_tasks or self._dangerous:
            free = self._isolates.room(len(self._apart))
            room |= {name: min(free, room.get(name, free)) for name in (*self._isolated_tasks, *self._dangerous)}
        return room

    def accept(self, jobs: Sequence[Claimed], sent: float) -> None:
        """Take over what a claim brought; `sent` is when it was asked for."""
        slack = margin(self._lease)
        until, now = sent + self._lease - slack, time.monotonic()
        if self._idle:
            self._wake_up()
        for job in jobs:
            cap = sent + job.timeout + SETTLE_GRACE
            cell = self._board.take(job.id, job.lease, sent, cap)
            run = Run(job, self._tasks.get(job.task), cell, min(until, cap - slack), self._courier.notify)
            run.cap, run.came_at = cap, now
            self.heads.came(job)
            self._waiting.append(run)
        self._fill()

    def until(self, run: Run) -> float:
        """The monotonic time until which the run has the right to go on and to settle."""
        return self._board.until(run.cell, run.until)

    def left(self, run: Run) -> None:
        """The run is settled or given up: its place on the board is free."""
        self._board.leave(run.cell)
        self.changed.set()

    # Starting.

    def _fill(self) -> None:
        """Start what waits, as far as slots go. A run that ends in its start comes back here, and is not to start the next."""
        if self._filling or not (self._waiting or self._apart) or not self.open():
            return
        self._filling = True
        try:
            self._return_late(time.monotonic())
            while self._apart and self._isolates.free and len(self._running) < self._slots:
                self._try(self._apart.popleft())
            while self._waiting and len(self._running) < self._slots:
                run = self._waiting.popleft()
                if not self._needs_isolation(run) or self._isolates.free:
                    self._try(run)
                elif len(self._apart) < self._slots:
                    self._apart.append(run)
                else:
                    self._put_aside(run)
            self._isolates.prepare(len(self._apart))
        finally:
            self._filling = False

    def _try(self, run: Run) -> None:
        """Start a run. Whatever keeps it from starting, a type that cannot be built or no thread to be had, is its failure."""
        try:
            self._start(run)
        except Exception as error:
            _logger.exception("job %s could not be started", run.job.id)
            self._end(run, Failed(failure_of(error), UNKNOWN_AFTER))

    def _needs_isolation(self, run: Run) -> bool:
        """A job whose run was lost before may have been what killed its process: it must not take others along again."""
        if run.task is None:
            return False
        if run.task.options.isolate:
            return True
        return (run.job.crashes > 0 or run.task.name in self._dangerous) and self._isolates.possible

    def _start(self, run: Run) -> None:
        if self.until(run) <= time.monotonic():
            # We were frozen between the claim and here: the job is no longer ours.
            self._forget(run)
            tell(self._events.lost, 1)
            return
        self._running[run] = None
        task = run.task
        if task is None:
            if run.job.task not in self._unknown:
                self._unknown.add(run.job.task)
                _logger.warning(
                    "task %s is not registered here; its jobs are put aside for %g s each", run.job.task, UNKNOWN_AFTER
                )
            self._end(run, Snoozed(UNKNOWN_AFTER, f"no task {run.job.task!r} is registered in the worker that claimed it"))
            return
        # Counted from the start, but the lease ends with the claim's time: what came late, by a slow claim, has a little less.
        run.deadline = min(time.monotonic() + run.job.timeout, run.cap - SETTLE_GRACE / 2)
        if self._needs_isolation(run):
            self._board.start(run.cell, How.APART)
            run.work = self._loop.create_task(self._isolated(run, self._isolates.take()))
            return
        try:
            arguments = task.parameters.unpack(run.job.body)
        except HawserError as error:
            self._end(run, Failed(failure_of(error), self._delay(run)))
            return
        ctx = Context(run.job, run) if task.wants_context else None
        self._board.start(run.cell, How.LOOP if task.is_async else How.THREAD)
        if task.is_async:
            run.work = self._loop.create_task(self._awaited(run, task, ctx, arguments))
        else:
            call = partial(task.fn, ctx, **arguments) if ctx else partial(task.fn, **arguments)
            run.ctx = ctx
            self._threads.start(run, call)

    async def _awaited(self, run: Run, task: Task[..., Any], ctx: Context | None, arguments: dict[str, Any]) -> None:
        run.begun = True
        try:
            if run.stop is not None:
                raise asyncio.CancelledError  # noqa: TRY301  # it was told before its first step
            value = await watched(task.fn(ctx, **arguments) if ctx else task.fn(**arguments), self._board, run.cell)
        except BaseException as error:  # noqa: BLE001  # SystemExit too: it ends the attempt, not the worker
            self._ended(run, error, failed=True, then=ctx.then if ctx else ())
        else:
            self._ended(run, value, failed=False, then=ctx.then if ctx else ())

    def _thread_ended(self, ended: Ended) -> None:
        run = ended.run
        self._ended(run, ended.value, failed=ended.failed, then=run.ctx.then if run.ctx else ())

    async def _isolated(self, run: Run, isolate: Isolate | None) -> None:
        run.begun = True
        try:
            outcome, then = await self._isolates.run(isolate, run, self._policies.of(run.job.queue))
        except asyncio.CancelledError as error:
            self._ended(run, error, failed=True)
        except Exception as error:
            _logger.exception("job %s could not be run apart", run.job.id)
            self._ended(run, error, failed=True)
        else:
            if isinstance(outcome, Failed) and outcome.lost:
                self._board.crashed(run.cell)
            self._end(run, outcome, then)
        self.isolate_freed.set()

    def _isolate_freed(self) -> None:
        self.isolate_freed.set()
        self._fill()

    def isolate_also(self, tasks: frozenset[str]) -> None:
        """Run the jobs of these tasks apart from now on: they have crashed a process lately, or may have."""
        self._dangerous = tasks

    # Ending.

    def _ended(self, run: Run, value: Any, *, failed: bool, then: Sequence[NewJob] = ()) -> None:
        """A handler returned or raised: what follows depends on whether it was told to stop."""
        if run.settled or run.stop is Stop.LOST:
            self._end(run, None)
        elif run.stop is Stop.TIMEOUT:
            self._end(run, self._timed_out(run))
        elif failed and run.stop is Stop.CANCEL and isinstance(value, asyncio.CancelledError):
            self._end(run, Cancelled())
        else:
            outcome = self._decided(run, value, failed=failed)
            if run.stop is Stop.DRAIN and not isinstance(outcome, Done):
                # We broke it off. Whatever it raises then, an error of a connection that was cut for one, is our doing.
                outcome = Released()
                self.returned += 1
            self._end(run, outcome, then if isinstance(outcome, Done) else ())

    def _decided(self, run: Run, value: Any, *, failed: bool) -> Outcome:
        try:
            return decide(value, attempt=run.job.attempt, backoff=self._backoff(run), failed=failed)
        except Exception as error:  # noqa: BLE001  # a backoff may be the user's own; its fault must not cost us the slot
            return Failed(failure_of(error), UNKNOWN_AFTER)

    def _timed_out(self, run: Run) -> Failed:
        text = f"timeout: the attempt took longer than {run.job.timeout:g} s"
        return Failed(Failure(text), self._delay(run))

    def _delay(self, run: Run) -> float:
        """The wait before the next attempt. A backoff may be the user's own; its fault must not cost us the slot."""
        try:
            return self._backoff(run).delay(run.job.attempt)
        except Exception:
            _logger.exception("the backoff of task %s failed; its job waits for %g s", run.job.task, UNKNOWN_AFTER)
            return UNKNOWN_AFTER

    def _backoff(self, run: Run) -> Backoff:
        return backoff_of(run.task.options.backoff if run.task else None, self._policies.of(run.job.queue))

    def _end(self, run: Run, outcome: Outcome | None, then: Sequence[NewJob] = ()) -> None:
        """Free the slot; write the outcome, if there is one and nobody has written before."""
        self._running.pop(run, None)
        self.finished += 1
        if run.stuck:
            self.stuck -= 1
        self.heads.left(run.job)
        if outcome is not None and not run.settled:
            self._board.start(run.cell, How.ENDED)
            self._reporter.report(run.job, outcome)
            retention = run.task.options.retention if run.task else None
            self._settler.add(run, outcome, then, keep=retention is None or retention.done > 0)
        elif not run.settled:
            run.settled = True
            self.left(run)
        self.changed.set()
        if self._waiting or self._apart:
            self._fill()

    # Watching.

    def look(self) -> float:
        """End runs whose time is up, whose lease is gone, or that somebody cancelled; say when to look again."""
        now = time.monotonic()
        for run in list(self._running):
            self._look_at(run, now)
        for waiting in (self._waiting, self._apart):
            lost = [run for run in waiting if self.until(run) <= now]
            for run in lost:
                waiting.remove(run)
                self._forget(run)
            if lost:
                tell(self._events.lost, len(lost))
        self._return_late(now)
        return LOOK_IDLE if self._idle else LOOK_EVERY

    @property
    def _idle(self) -> bool:
        return not (self._running or self._waiting or self._apart)

    def _look_at(self, run: Run, now: float) -> None:
        if run.stop is Stop.TIMEOUT and not run.settled and now > run.stopped_at + STOP_WITHIN:
            self._give_up(run)
        if run.stop not in (None, Stop.CANCEL):
            return
        says, until = self._board.said(run.cell)
        if says is Says.LOST or max(run.until, until) <= now:
            tell(self._events.lost, 1)
            _logger.warning("job %s: its lease is gone, the run is ended and writes nothing", run.job.id)
            self._stop(run, Stop.LOST)
        elif run.deadline <= now:
            self._stop(run, Stop.TIMEOUT)
        elif says is Says.CANCEL_ASKED and run.stop is None:
            self._stop(run, Stop.CANCEL)

    def _stop(self, run: Run, why: Stop) -> None:
        """End a run: async handlers are cancelled, isolated ones killed, threads only asked."""
        run.stop = why
        run.stopped_at = time.monotonic()
        if run.work is not None:
            if run.begun:  # else nothing of it would ever run, nor tell of its end
                run.work.cancel()
        elif why in (Stop.TIMEOUT, Stop.LOST):
            self._give_up(run)

    def _give_up(self, run: Run) -> None:
        """What cannot be stopped goes on and keeps its slot, but it loses its right to settle."""
        run.stuck = True
        self.stuck += 1
        match run.stop:
            case Stop.TIMEOUT:
                outcome = self._timed_out(run)
                self._reporter.report(run.job, outcome)
                self._settler.add(run, outcome)
            case Stop.DRAIN | Stop.CANCEL:  # released, a job that somebody cancelled is cancelled
                self.returned += 1
                self._settler.add(run, Released())
            case _:
                run.settled = True
                self.left(run)

    def _return_late(self, now: float) -> None:
        """Hand back what has waited for too long to have all of its time; another worker may have a place for it."""
        while self._waiting and self._waiting[0].came_at + WAIT_WITHIN < now:
            self._release(self._waiting.popleft())
        while self._apart and self._apart[0].came_at + WAIT_WITHIN < now:
            self._put_aside(self._apart.popleft())

    def _put_aside(self, run: Run) -> None:
        """Not released: it would be due at once, and might be claimed again and again while there is no child process."""
        self.heads.left(run.job)
        self._settler.add(run, Snoozed(PUT_ASIDE, "no child process was free to run it apart"))

    def _forget(self, run: Run) -> None:
        """Give up a job that was claimed and never started."""
        self.heads.left(run.job)
        run.settled = True
        self.left(run)

    # Draining.

    def hand_back(self) -> int:
        """Give back what was claimed and not started; no attempt is burned."""
        waiting = [*self._waiting, *self._apart]
        self._waiting.clear()
        self._apart.clear()
        for run in waiting:
            self._release(run)
        return len(waiting)

    def _release(self, run: Run) -> None:
        self.returned += 1
        self.heads.left(run.job)
        self._settler.add(run, Released())

    async def drain(self, seconds: float, *, alone: bool) -> None:
        """Wait for the running jobs, then end those that can be ended and hand them back.

        A coroutine that was cancelled may clean up for a moment. One that takes longer ends with the process, and the supervisor
        hands its job back then. Without a supervisor, `alone`, it is given up here and its job handed back: it may go on for a
        little beside the next run, as after a timeout, but it writes nothing.
        """
        end = time.monotonic() + seconds
        while self._running and (left := end - time.monotonic()) > 0:
            self.changed.clear()
            try:
                async with asyncio.timeout(min(left, LOOK_EVERY)):
                    await self.changed.wait()
            except TimeoutError:
                self.look()
        for run in list(self._running):
            if run.stop is None:
                self._stop(run, Stop.DRAIN)
        ending = [run.work for run in self._running if run.work is not None]
        if ending:
            await asyncio.wait(ending, timeout=STOP_WITHIN if alone else CLEAN_UP)
        if alone:
            for run in list(self._running):
                if run.work is not None and not run.settled:
                    self._give_up(run)
        self._threads.stop()
