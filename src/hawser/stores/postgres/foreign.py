"""Enqueueing in a transaction of the user's own: on a connection of asyncpg, psycopg, SQLAlchemy or Django.

The job is visible exactly from that transaction's commit on, and never when it is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hawser.errors import ConfigError, LeaseLost
from hawser.job import NewJob
from hawser.outcome import worked
from hawser.store import Emitted, Enqueued, NewStep, Settlement
from hawser.stores.batches import any_batch
from hawser.stores.postgres.debounce import Terms, steps_of
from hawser.stores.postgres.dependencies import hold_back_arguments, join_arguments
from hawser.stores.postgres.drivers import asynchronous, synchronous
from hawser.stores.postgres.enqueue_arguments import Arguments
from hawser.stores.postgres.errors import AGAIN, NO_LANE, NO_TABLES, REFUSALS, WRONG_ISOLATION, LanesForgotten
from hawser.stores.postgres.events import emitted_of
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.server import Server


class Visit:
    """Jobs on their way into the caller's transaction. Their lanes exist already: making them is not part of it."""

    def __init__(
        self, server: Server, directory: LaneCatalog, jobs: Sequence[NewJob], lanes: Sequence[int], own: str | None = None
    ) -> None:
        """`own` is the batch of the job that they follow from."""
        self._own = own
        self._hold_back, self._join = server.sql["hold_back"], server.sql["join_batches"]
        self._given = server.given
        self._jobs = jobs
        self._elsewhere = f"inside: the jobs are in {server.address.where}; is this a connection to another database?"
        self._directory = directory
        wake = sorted({job.queue for job in jobs}) if server.address.listen else []
        self._steps = partial(steps_of, server, jobs, lanes, Terms(True, wake, None))

    def run(self, con: Any) -> list[Enqueued]:
        """Write them on a synchronous connection."""
        execute = synchronous(con)

        def do(statement: str, asked: Arguments) -> Any:
            try:
                return execute(statement, asked)
            except Exception as error:
                self._explain(error)
                raise

        steps = self._steps()
        rows: Any = None
        try:
            while True:
                rows = do(*steps.send(rows))
        except StopIteration as end:
            answers: list[Enqueued] = end.value
        for statement, more in self._behind(answers):
            do(statement, more)
        return answers

    async def arun(self, con: Any) -> list[Enqueued]:
        """Write them on an asynchronous connection."""
        execute = asynchronous(con)

        async def do(statement: str, asked: Arguments) -> Any:
            try:
                return await execute(statement, asked)
            except Exception as error:
                self._explain(error)
                raise

        steps = self._steps()
        rows: Any = None
        try:
            while True:
                rows = await do(*steps.send(rows))
        except StopIteration as end:
            answers: list[Enqueued] = end.value
        for statement, more in self._behind(answers):
            await do(statement, more)
        return answers

    def _behind(self, answers: Sequence[Enqueued]) -> list[tuple[str, Arguments]]:
        """What is written behind the jobs: what they wait for, and the batches that they count in."""
        held = hold_back_arguments(self._given, self._jobs, answers)
        joined = join_arguments(self._given, self._jobs, answers, self._own)
        return [(statement, asked) for statement, asked in ((self._hold_back, held), (self._join, joined)) if asked is not None]

    def _explain(self, error: Exception) -> None:
        """Our function refused. The driver raises its own error; the transaction can only be rolled back, as after any error."""
        root = _root(error)
        if root is not None and (refusal := REFUSALS.get(str(_state(root)))) is not None:
            raise refusal(_detail(root)) from error
        if root is not None and _state(root) in (NO_LANE, *AGAIN):
            self._directory.forget()
        if root is not None and _state(root) == NO_LANE:
            raise LanesForgotten(f"{self._elsewhere} Else it was set back to an earlier state (a backup?): try again") from error
        if root is not None and _state(root) in NO_TABLES:
            raise ConfigError(self._elsewhere) from error


class EmitVisit:
    """An event on its way into the caller's transaction. Those who wait for it are woken within a second of the commit."""

    def __init__(self, server: Server, asked: tuple[Any, ...]) -> None:
        self._statement = server.sql["emit"]
        self._where = server.address.where
        self._asked = asked

    def run(self, con: Any) -> Emitted:
        execute = synchronous(con)
        try:
            return emitted_of(execute(self._statement, self._asked))
        except Exception as error:
            self._explain(error)
            raise

    async def arun(self, con: Any) -> Emitted:
        execute = asynchronous(con)
        try:
            return emitted_of(await execute(self._statement, self._asked))
        except Exception as error:
            self._explain(error)
            raise

    def _explain(self, error: Exception) -> None:
        root = _root(error)
        if root is not None and _state(root) in NO_TABLES:
            raise ConfigError(f"inside: the events are in {self._where}; is this a connection to another database?") from error


class EndVisit:
    """A settlement on its way into the transaction of the handler, with the jobs that follow behind it: its last statements."""

    def __init__(self, server: Server, settlement: Settlement, then: Visit | None) -> None:
        self._statement = server.sql["finish_inside"]
        self._where = server.address.where
        self._then = then
        outcome = settlement.outcome
        result = outcome.result if worked(outcome) else None
        self._asked: tuple[Any, ...] = server.given, settlement.id, settlement.lease, result, settlement.keep

    def run(self, con: Any) -> None:
        try:
            self._check(synchronous(con)(self._statement, self._asked))
        except Exception as error:
            self._explain(error)
            raise
        if self._then is not None:
            # Behind the end of the job, which frees its key: a job that follows may have the same.
            self._then.run(con)

    async def arun(self, con: Any) -> None:
        try:
            self._check(await asynchronous(con)(self._statement, self._asked))
        except Exception as error:
            self._explain(error)
            raise
        if self._then is not None:
            await self._then.arun(con)

    def _check(self, rows: Any) -> None:
        if rows[0][0] is None:
            raise LeaseLost(
                f"transaction: the lease of this run is gone, so nothing of it is written. If that cannot be: the jobs are in "
                f"{self._where}; is this a connection to another database?"
            )

    def _explain(self, error: Exception) -> None:
        root = _root(error)
        if root is None:
            return
        if _state(root) == WRONG_ISOLATION:
            raise ConfigError(
                f"transaction: it runs under {_detail(root)}, under which an extension of the lease makes it fail at its end; "
                "use read committed, PostgreSQL's default. Nothing was written"
            ) from error
        if _state(root) in NO_TABLES:
            raise ConfigError(
                f"transaction: the jobs are in {self._where}; is this a connection to another database? Nothing was written"
            ) from error


class StepVisit(EndVisit):
    """A step on its way into the transaction of the handler: its last statement."""

    def __init__(self, server: Server, step: NewStep) -> None:
        self._statement = server.sql["record_inside"]
        self._where = server.address.where
        self._then = None
        self._asked = server.given, step.id, step.lease, step.name, step.value


def _root(error: Any) -> Any:
    """The driver's own error."""
    root = getattr(error, "orig", None) or error
    return getattr(root, "__cause__", None) if not _state(root) else root


def _detail(root: Any) -> str:
    return str(getattr(root, "detail", None) or getattr(getattr(root, "diag", None), "message_detail", None))


async def end_visit(server: Server, directory: LaneCatalog, settlement: Settlement) -> EndVisit:
    """Make what the settlement and its jobs need outside of the transaction."""
    own = None
    if any_batch(settlement.then):
        own = await server.line("read").value(server.sql["batch_of"], settlement.id, writing=False)
    then = await visit(server, directory, settlement.then, own) if settlement.then else None
    return EndVisit(server, settlement, then)


async def visit(server: Server, directory: LaneCatalog, jobs: Sequence[NewJob], own: str | None = None) -> Visit:
    """Make what the jobs need outside of the transaction, so that no other process waits for its end."""
    lanes = await directory.make_for(jobs, server.line("enqueue"))
    return Visit(server, directory, jobs, [lanes[job.queue, job.task, job.priority] for job in jobs], own)


def _state(error: Any) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
