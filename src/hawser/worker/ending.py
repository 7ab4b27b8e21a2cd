"""What follows when a handler has returned, raised, or was stopped: pure."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from hawser.outcome import NOTHING_RETURNED, Cancelled, Failed, Failure, Outcome, Released, Suspended, decide, failure_of, worked
from hawser.policy import QueuePolicy, backoff_of
from hawser.worker.run import Run, Stop

_logger = logging.getLogger("hawser.worker")

FAULT_AFTER: Final = 60.0
"""Seconds before the next attempt where a backoff, or the start itself, failed."""


def is_plain(run: Run) -> bool:
    """Whether what its handler returned is the whole outcome: it was not asked to end, and has no context. Nearly always so."""
    return run.stop is None and run.ctx is None and run.offence is None and not run.settled


def outcome_of(run: Run, value: Any, *, failed: bool, victim: bool, policy: QueuePolicy | None) -> Outcome | None:
    """The outcome of a run whose handler returned the value, or raised it; None when the run has no right to one.

    `victim`: a moment ago another handler cancelled tasks that are not its own.
    """
    if run.settled or (run.stop is not None and run.stop is Stop.LOST):
        return None
    cancelled = failed and isinstance(value, asyncio.CancelledError)
    if run.ctx is not None:
        value, failed = run.ctx.ended(value, failed=failed)
    if run.offence is not None:
        return Failed(_offence(run, value if failed else None), delay(run, policy))
    if run.stop is None:
        return Released() if cancelled and victim else _decided(run, value, policy, failed=failed)
    if run.stop is Stop.TIMEOUT:
        return timed_out(run, policy)
    if cancelled and run.stop is Stop.CANCEL:
        return Cancelled()
    outcome = _decided(run, value, policy, failed=failed)
    if run.stop is Stop.DRAIN and not worked(outcome) and not isinstance(value, Suspended):
        # We broke it off. An error that it raises then, such as that of a connection that was cut, is caused by us.
        return Released()
    return outcome


def timed_out(run: Run, policy: QueuePolicy | None) -> Failed:
    text = f"timeout: the attempt took longer than {run.job.timeout:g} s"
    if run.offence is not None:
        text = f"the handler is to blame: {run.offence} ({text})"
    return Failed(Failure(text), delay(run, policy))


def delay(run: Run, policy: QueuePolicy | None) -> float:
    """The wait before the next attempt. A backoff may be the user's own code; its error must not cost the slot."""
    try:
        return backoff_of(run.task.options.backoff if run.task else None, policy).delay(run.job.attempt)
    except Exception:
        _logger.exception("the backoff of task %s failed; its job waits for %g s", run.job.task, FAULT_AFTER)
        return FAULT_AFTER


def _decided(run: Run, value: Any, policy: QueuePolicy | None, *, failed: bool) -> Outcome:
    if value is None and not failed:
        return NOTHING_RETURNED
    try:
        backoff = backoff_of(run.task.options.backoff if run.task else None, policy)
        return decide(value, attempt=run.job.attempt, backoff=backoff, failed=failed)
    except Exception as error:  # noqa: BLE001  # a backoff may be the user's own code; its error must not cost the slot
        return Failed(failure_of(error), FAULT_AFTER)


def _offence(run: Run, error: BaseException | None) -> Failure:
    """The error that is recorded for a handler that tried to harm other runs."""
    text = f"the handler is to blame: {run.offence}"
    if error is None:
        return Failure(text)
    raised = failure_of(error)
    return Failure(f"{text} ({raised.error})", raised.traceback)
