"""`task_finished`: sent when the store has said that a job is over, and what it is then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections

from hawser.contrib.django.framework import TaskResult, task_finished
from hawser.contrib.django.results import STATUS_OF, set_field
from hawser.job import Claimed, State
from hawser.outcome import Outcome, failure_in, worked
from hawser.telemetry.events import Events, SettledBatch

_logger = logging.getLogger("hawser.worker")

ResultOf = Callable[[Claimed, Outcome], TaskResult | None]
"""The result of a job that has ended, or None for a job that is not Django's."""


class FinishedSignals(Events):
    """Listens to workers. Receivers may use the database, so they are called in a thread of their own, one after the other."""

    def __init__(self, sender: type, result_of: ResultOf) -> None:
        self._sender = sender
        self._result_of = result_of
        self._thread: ThreadPoolExecutor | None = None

    def settled(self, batch: SettledBatch) -> None:
        for job, settlement, answer in zip(batch.jobs, batch.settlements, batch.answers, strict=True):
            if answer.state is not None and _ends(settlement.outcome, answer.state):
                self._hand_over(job, settlement.outcome, answer.state)

    def _hand_over(self, job: Claimed, outcome: Outcome, state: State) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._send(job, outcome, state)  # a test drains without a loop
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "hawser-django-signals")
        loop.run_in_executor(self._thread, self._send, job, outcome, state)

    def _send(self, job: Claimed, outcome: Outcome, state: State) -> None:
        close_old_connections()
        try:
            result = self._result_of(job, outcome)
            if result is not None:
                set_field(result, "status", STATUS_OF[state])
                task_finished.send(self._sender, task_result=result)
        except Exception:
            _logger.exception("a receiver of task_finished failed, for job %s", job.id)
        finally:
            close_old_connections()

    async def finish(self) -> None:
        """Until all receivers have been called: the worker stops."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)


def _ends(outcome: Outcome, state: State) -> bool:
    """Whether it was this outcome that ended the job; a repeated one may find what another run made of it."""
    match state:
        case State.DONE:
            return worked(outcome)
        case State.DEAD:
            return failure_in(outcome) is not None
        case State.CANCELLED:
            return not worked(outcome)
        case _:
            return False
