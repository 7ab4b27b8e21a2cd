"""Enqueueing in a transaction of the user's own: on a connection of asyncpg, psycopg, SQLAlchemy or Django.

The job is visible exactly from that transaction's commit on, and never when it is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hawser.errors import ConfigError, HawserError, LeaseLost
from hawser.job import NewJob
from hawser.outcome import worked
from hawser.store import Enqueued, Settlement
from hawser.stores.postgres.batch import Pieces
from hawser.stores.postgres.dependencies import hold_back_arguments
from hawser.stores.postgres.drivers import asynchronous, synchronous
from hawser.stores.postgres.errors import (
    AGAIN,
    ID_CONFLICT,
    NO_LANE,
    NO_TABLES,
    NO_UPSTREAM,
    QUEUE_FULL,
    WRONG_ISOLATION,
    LanesForgotten,
    id_conflict,
    no_upstream,
    queue_full,
)
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.server import Server

_REFUSALS: Mapping[str, Callable[[str], HawserError]] = {
    QUEUE_FULL: queue_full,
    ID_CONFLICT: id_conflict,
    NO_UPSTREAM: no_upstream,
}


class Visit:
    """Jobs on their way into the caller's transaction. Their lanes exist already: making them is not part of it."""

    def __init__(self, server: Server, directory: LaneCatalog, jobs: Sequence[NewJob], lanes: Sequence[int]) -> None:
        self._statement = server.sql["enqueue"]
        self._hold_back = server.sql["hold_back"]
        self._given = server.given
        self._jobs = jobs
        self._elsewhere = f"inside: the jobs are in {server.address.where}; is this a connection to another database?"
        self._directory = directory
        self._pieces = Pieces(jobs, lanes)
        wake = sorted({job.queue for job in jobs}) if server.address.listen else []
        self._asked = [batch.arguments(server.given, late=True, wake=wake) for batch in self._pieces.batches]

    def run(self, con: Any) -> list[Enqueued]:
        """Write them on a synchronous connection."""
        execute = synchronous(con)
        said = []
        for asked in self._asked:
            try:
                said.append(execute(self._statement, asked))
            except Exception as error:
                self._explain(error)
                raise
        answers = self._pieces.answers(said)
        if (held := hold_back_arguments(self._given, self._jobs, answers)) is not None:
            try:
                execute(self._hold_back, held)
            except Exception as error:
                self._explain(error)
                raise
        return answers

    async def arun(self, con: Any) -> list[Enqueued]:
        """Write them on an asynchronous connection."""
        execute = asynchronous(con)
        said = []
        for asked in self._asked:
            try:
                said.append(await execute(self._statement, asked))
            except Exception as error:
                self._explain(error)
                raise
        answers = self._pieces.answers(said)
        if (held := hold_back_arguments(self._given, self._jobs, answers)) is not None:
            try:
                await execute(self._hold_back, held)
            except Exception as error:
                self._explain(error)
                raise
        return answers

    def _explain(self, error: Exception) -> None:
        """Our function refused. The driver raises its own error; the transaction can only be rolled back, as after any error."""
        root = _root(error)
        if root is not None and (refusal := _REFUSALS.get(str(_state(root)))) is not None:
            raise refusal(_detail(root)) from error
        if root is not None and _state(root) in (NO_LANE, *AGAIN):
            self._directory.forget()
        if root is not None and _state(root) == NO_LANE:
            raise LanesForgotten(f"{self._elsewhere} Else it was set back to an earlier state (a backup?): try again") from error
        if root is not None and _state(root) in NO_TABLES:
            raise ConfigError(self._elsewhere) from error


class EndVisit:
    """A settlement on its way into the transaction of the handler, with the jobs that follow behind it: its last statements."""

    def __init__(self, server: Server, settlement: Settlement, then: Visit | None) -> None:
        self._statement = server.sql["finish_inside"]
        self._where = server.address.where
        self._then = then
        outcome = settlement.outcome
        result = outcome.result if worked(outcome) else None
        self._asked = server.given, settlement.id, settlement.lease, result, settlement.keep

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


def _root(error: Any) -> Any:
    """The driver's own error."""
    root = getattr(error, "orig", None) or error
    return getattr(root, "__cause__", None) if not _state(root) else root


def _detail(root: Any) -> str:
    return str(getattr(root, "detail", None) or getattr(getattr(root, "diag", None), "message_detail", None))


async def end_visit(server: Server, directory: LaneCatalog, settlement: Settlement) -> EndVisit:
    """Make what the settlement and its jobs need outside of the transaction."""
    then = await visit(server, directory, settlement.then) if settlement.then else None
    return EndVisit(server, settlement, then)


async def visit(server: Server, directory: LaneCatalog, jobs: Sequence[NewJob]) -> Visit:
    """Make what the jobs need outside of the transaction, so that no other process waits for its end."""
    lanes = await directory.make_for(jobs, server.line("enqueue"))
    return Visit(server, directory, jobs, [lanes[job.queue, job.task, job.priority] for job in jobs])


def _state(error: Any) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
