"""Starts claimed jobs, and has the outcomes written that follow when they end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from hawser.errors import HawserError, InvalidJob
from hawser.job import Claimed, NewJob
from hawser.outcome import NOTHING_RETURNED, Failed, Outcome, Released, Snoozed, failure_of, hands_back
from hawser.policy import QueuePolicy
from hawser.task import Task
from hawser.telemetry.events import Events, tell
from hawser.value.payload import is_object
from hawser.worker.ending import FAULT_AFTER, delay, is_plain, outcome_of, timed_out
from hawser.worker.policies import Policies
from hawser.worker.progress_writer import ProgressWriter
from hawser.worker.refusals import Refusals
from hawser.worker.run import Run, Stop
from hawser.worker.runners import Runners
from hawser.worker.settler import Settler
from hawser.worker.slots import Slots

_logger = logging.getLogger("hawser.worker")

VICTIM_WITHIN: Final = 5.0
"""Seconds after a handler has cancelled others' tasks in which a handler that ends as cancelled counts as its victim."""

PUT_ASIDE: Final = 3.0
"""Seconds for which a job is put aside that crashed a process before and found no child process here."""


class Executor:
    """What is claimed starts at once or is handed back at once: nothing waits here. It is the `Host` of the runs, which report
    their ends to it."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        slots: Slots,
        runners: Runners,
        settler: Settler,
        progress_writer: ProgressWriter,
        policies: Policies,
        refusals: Refusals,
        events: Events,
    ) -> None:
        self._tasks = tasks
        self._slots = slots
        self._runners = runners
        self._settler = settler
        self._policies = policies
        self._refusals = refusals
        self._events = events
        self._offended_at = 0.0
        self._claiming = False
        self._declined: list[tuple[Run, Outcome]] = []
        """What child processes declined while a claim was under way."""
        self.notify, self.wrote = progress_writer.notify, progress_writer.wrote
        self.returned = 0
        """Jobs that were handed back, of those that had begun and those that had not."""

        self.isolate_freed = runners.freed
        """Whenever a run that needs a child process may have become possible."""

    # Starting.

    def room(self) -> dict[str, int]:
        """Of tasks with a limit of their own, and of isolated ones: how many more may run."""
        limited, apart = self._slots.room(), self._runners.room()
        return limited | {name: min(free, limited.get(name, free)) for name, free in apart.items()}

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """While a claim is under way. It was sent before a child process declined a job, so it would bring that job once more:
        the job is given back when the claim has ended."""
        self._claiming = True
        try:
            yield
        finally:
            self._claiming = False
            declined, self._declined = self._declined, []
            for run, outcome in declined:
                self._settler.add(run, outcome)

    def accept(self, jobs: Sequence[Claimed], sent: float) -> None:
        """Start what a claim brought, or hand it back; `sent` is when it was asked for."""
        slots, now, closed = self._slots, time.monotonic(), self._slots.closed
        for job in jobs:
            run = slots.admit(job, self._tasks.get(job.task), sent, self)
            if closed or not run.may_start(now):
                # We are to end, or were frozen since the claim was sent.
                self._release(run)
                continue
            slots.take(run)
            try:
                self._start(run, now)
            except Exception as error:
                # Such as a type that cannot be built, or a thread that cannot start.
                _logger.exception("job %s could not be started", job.id)
                self._end(run, Failed(failure_of(error), FAULT_AFTER))

    def _start(self, run: Run, now: float) -> None:
        task = run.task
        if task is None:
            self._end(run, self._refusals.decline(run.job, f"no task {run.job.task!r} is registered there"))
            return
        run.start_clock(now)
        runner = self._runners.choose(run, task)
        if runner is None:
            self._find_no_child(run, task)
            return
        if not runner.apart:
            try:
                run.arguments = task.parameters.unpack(run.job.body)
            except HawserError as error:
                self._end(run, self._misfit(run, error))
                return
            run.ctx = task.context(run.job, run)
        run.runner = runner
        runner.start(run)

    def _misfit(self, run: Run, error: HawserError) -> Outcome:
        """A payload that is not JSON fits no worker of any release; another may accept the rest."""
        if isinstance(error, InvalidJob) and is_object(run.job.body):
            return self._refusals.decline(run.job, str(error))
        return Failed(failure_of(error), delay(run, self._policy(run)))

    def _find_no_child(self, run: Run, task: Task[..., Any]) -> None:
        """Hand back what has to run apart and cannot now.

        Of tasks that are known to run apart no more are claimed until a child process is free. A single job that crashed before
        would be claimed again and again until then, so it waits for a while.
        """
        self._slots.leave(run)
        if self._runners.are_apart(task):
            self._release(run)
        else:
            self._settler.add(
                run, Snoozed(PUT_ASIDE, "it was lost with its process before, so it runs in one of its own; none was free yet")
            )

    def _release(self, run: Run) -> None:
        """Hand back a job that was not started; no attempt is burned."""
        self.returned += 1
        self._settler.add(run, Released())

    @property
    def draining(self) -> bool:
        """Whether the worker is to end: runs with steps hand their jobs back before the next one."""
        return self._slots.closed

    def _policy(self, run: Run) -> QueuePolicy | None:
        return self._policies.of(run.job.queue)

    # Ending.

    def ended(self, run: Run, value: Any, *, failed: bool) -> None:
        """A handler returned or raised: what follows depends on whether it was told to stop."""
        if value is None and not failed and is_plain(run):
            self._end(run, NOTHING_RETURNED)
            return
        policy = self._policies.of(run.job.queue)
        outcome = outcome_of(run, value, failed=failed, victim=failed and self._are_victims(), policy=policy)
        self.returned += hands_back(outcome)
        self._end(run, outcome, run.follows(outcome) if run.ctx is not None and outcome is not None else ())

    def decided(self, run: Run, outcome: Outcome, then: Sequence[NewJob]) -> None:
        """A child process has decided what follows."""
        self._end(run, outcome if run.misfit is None else self._refusals.decline(run.job, run.misfit), then)

    def blamed(self, run: Run) -> None:
        """A handler tried to harm other runs. It may have cancelled tasks of theirs: that does not fail their attempts."""
        if not self._are_victims():
            _logger.error("%s: %s; its attempt fails, and the others go on", run, run.offence)
        self._offended_at = time.monotonic()

    def _are_victims(self) -> bool:
        """Whether a handler that the worker did not cancel was cancelled by another handler."""
        return self._offended_at > 0.0 and time.monotonic() - self._offended_at < VICTIM_WITHIN

    def _end(self, run: Run, outcome: Outcome | None, then: Sequence[NewJob] = ()) -> None:
        """Free the slot; write the outcome, if there is one, it was decided in time, and none was written before."""
        self._slots.leave(run)
        if run.settled:
            return
        if outcome is not None and _is_too_late(run):
            if run.stop is not Stop.LOST:
                tell(self._events.lost, 1)
                _logger.warning("job %s: its lease was gone before its run ended; nothing is written", run.job.id)
            outcome = None
        if outcome is None:
            self._drop(run)
            return
        run.outcome_waits()
        if self._claiming and run.misfit is not None:
            run.settled = True
            self._declined.append((run, outcome))
            return
        retention = run.task.options.retention if run.task else None
        self._settler.add(run, outcome, then, keep=retention is None or retention.done > 0)

    def _drop(self, run: Run) -> None:
        """Its lease is gone: there is nothing to write."""
        run.settled = True
        self._slots.settled((run,))

    # Stopping.

    def stop(self, run: Run, why: Stop) -> None:
        """End a run: async handlers are cancelled, isolated ones killed, threads only asked."""
        run.stop = why
        run.stopped_at = time.monotonic()
        if why is Stop.LOST:
            run.abandon()
        assert run.runner is not None
        if not run.runner.stop(run) and why in (Stop.TIMEOUT, Stop.LOST):
            self.give_up(run)

    def give_up(self, run: Run) -> None:
        """What cannot be stopped goes on and keeps its slot, but it loses its right to settle."""
        self._slots.keep(run)
        match run.stop:
            case Stop.TIMEOUT:
                self._settler.add(run, timed_out(run, self._policy(run)))
            case Stop.DRAIN | Stop.CANCEL:  # released, a job that is to be cancelled is cancelled
                self.returned += 1
                self._settler.add(run, Released())
            case _:
                self._drop(run)


def _is_too_late(run: Run) -> bool:
    """Whether its right to run was over when it ended, as far as we knew. A timeout was decided before."""
    if run.stop is None:
        return not run.may_write(time.monotonic())
    return run.stop is Stop.LOST or (run.stop is not Stop.TIMEOUT and not run.may_write(time.monotonic()))
