"""Enqueueing in a transaction of the user's own: on a connection of asyncpg, psycopg, SQLAlchemy or Django.

The job is visible exactly from that transaction's commit on, and never when it is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from hawser.errors import ConfigError, LeaseLost
from hawser.job import NewJob
from hawser.outcome import worked
from hawser.store import Emitted, Enqueued, NewStep, Settlement
from hawser.stores.batches import any_batch
from hawser.stores.postgres.debounce import Steps, Terms, steps_of
from hawser.stores.postgres.dependencies import circle_arguments, hold_back_arguments, join_arguments
from hawser.stores.postgres.drivers import asynchronous, synchronous
from hawser.stores.postgres.enqueue_arguments import Arguments
from hawser.stores.postgres.errors import AGAIN, NO_LANE, NO_TABLES, REFUSALS, WRONG_ISOLATION, LanesForgotten
from hawser.stores.postgres.events import emitted_of
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.server import Server


class PreparedEnqueue:
    """Jobs on their way into the caller's transaction. Their lanes exist already: making them is not part of it."""

    def __init__(
        self, server: Server, catalog: LaneCatalog, jobs: Sequence[NewJob], lanes: Sequence[int], own: str | None = None
    ) -> None:
        """`own` is the batch of the job that they follow from."""
        self._own = own
        self._behind_jobs = tuple(server.sql[name] for name in ("hold_back", "join_batches", "check_circles"))
        self._given = server.given
        self._jobs = jobs
        self._elsewhere = f"inside: the jobs are in {server.address.where}; is this a connection to another database?"
        self._catalog = catalog
        wake = sorted({job.queue for job in jobs}) if server.address.listen else []
        self._steps = partial(steps_of, server, jobs, lanes, Terms(True, wake, None))

    def run(self, con: Any) -> list[Enqueued]:
        """Write them on a synchronous connection."""
        execute, steps = synchronous(con), self._written()
        rows: Any = None
        with _explained(self._explain):
            try:
                while True:
                    rows = execute(*steps.send(rows))
            except StopIteration as end:
                answers: list[Enqueued] = end.value
        return answers

    async def arun(self, con: Any) -> list[Enqueued]:
        """Write them on an asynchronous connection."""
        execute, steps = asynchronous(con), self._written()
        rows: Any = None
        with _explained(self._explain):
            try:
                while True:
                    rows = await execute(*steps.send(rows))
            except StopIteration as end:
                answers: list[Enqueued] = end.value
        return answers

    def _written(self) -> Steps:
        """The statements, one after the other; each is sent its rows."""
        answers = yield from self._steps()
        for statement, asked in self._behind(answers):  # noqa: UP028  # rows cannot be sent to a list
            yield statement, asked
        return answers

    def _behind(self, answers: Sequence[Enqueued]) -> list[tuple[str, Arguments]]:
        """What is written behind the jobs: what they wait for, and the batches that they count in."""
        held = hold_back_arguments(self._given, self._jobs, answers)
        joined = join_arguments(self._given, self._jobs, answers, self._own)
        circles = circle_arguments(self._jobs, answers, None)
        each = zip(self._behind_jobs, (held, joined, circles), strict=True)
        return [(statement, asked) for statement, asked in each if asked is not None]

    def _explain(self, error: Exception) -> None:
        """Our function refused. The driver raises its own error; the transaction can only be rolled back, as after any error."""
        root = _root(error)
        if root is not None and (refusal := REFUSALS.get(str(_state(root)))) is not None:
            raise refusal(_detail(root)) from error
        if root is not None and _state(root) == WRONG_ISOLATION:
            raise ConfigError(
                f"inside: a job of a batch that waits for others is added under read committed only; this transaction runs under "
                f"{_detail(root)}, and would not see that jobs wait in a circle. Use read committed, or add it outside"
            ) from error
        if root is not None and _state(root) in (NO_LANE, *AGAIN):
            self._catalog.forget()
        if root is not None and _state(root) == NO_LANE:
            raise LanesForgotten(f"{self._elsewhere} Else it was set back to an earlier state (a backup?): try again") from error
        if root is not None and _state(root) in NO_TABLES:
            raise ConfigError(self._elsewhere) from error


class PreparedEmit:
    """An event on its way into the caller's transaction. Those who wait for it are woken within a second of the commit."""

    def __init__(self, server: Server, asked: tuple[Any, ...]) -> None:
        self._statement = server.sql["emit"]
        self._where = server.address.where
        self._asked = asked

    def run(self, con: Any) -> Emitted:
        with _explained(self._explain):
            return emitted_of(synchronous(con)(self._statement, self._asked))

    async def arun(self, con: Any) -> Emitted:
        with _explained(self._explain):
            return emitted_of(await asynchronous(con)(self._statement, self._asked))

    def _explain(self, error: Exception) -> None:
        root = _root(error)
        if root is not None and _state(root) in NO_TABLES:
            raise ConfigError(f"inside: the events are in {self._where}; is this a connection to another database?") from error


class PreparedEnd:
    """A settlement on its way into the transaction of the handler. With the jobs that follow behind it, its last statements."""

    def __init__(self, server: Server, settlement: Settlement, then: PreparedEnqueue | None) -> None:
        self._statement = server.sql["finish_inside"]
        self._where = server.address.where
        self._then = then
        outcome = settlement.outcome
        result = outcome.result if worked(outcome) else None
        self._asked: tuple[Any, ...] = server.given, settlement.id, settlement.lease, result, settlement.keep

    def begin(self, con: Any) -> None:
        """What is wrong with the transaction is said by its last statement: to ask before would be one more round trip."""

    async def abegin(self, con: Any) -> None:
        """As above."""

    def run(self, con: Any) -> None:
        with _explained(self._explain):
            self._check(synchronous(con)(self._statement, self._asked))
        if self._then is not None:
            # Behind the end of the job, which frees its key: a job that follows may have the same.
            self._then.run(con)

    async def arun(self, con: Any) -> None:
        with _explained(self._explain):
            self._check(await asynchronous(con)(self._statement, self._asked))
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


class PreparedStep(PreparedEnd):
    """A step on its way into the transaction of the handler. It is its last statement."""

    def __init__(self, server: Server, step: NewStep) -> None:
        self._statement = server.sql["record_inside"]
        self._where = server.address.where
        self._then = None
        self._asked = server.given, step.id, step.lease, step.name, step.value


@contextmanager
def _explained(explain: Callable[[Exception], None]) -> Iterator[None]:
    """An error of the driver, in words of ours where `explain` has them."""
    try:
        yield
    except Exception as error:
        explain(error)
        raise


def _root(error: Any) -> Any:
    """The driver's own error."""
    root = getattr(error, "orig", None) or error
    return getattr(root, "__cause__", None) if not _state(root) else root


def _detail(root: Any) -> str:
    return str(getattr(root, "detail", None) or getattr(getattr(root, "diag", None), "message_detail", None))


async def prepare_end(server: Server, catalog: LaneCatalog, settlement: Settlement) -> PreparedEnd:
    """Make what the settlement and its jobs need outside of the transaction."""
    own = None
    if any_batch(settlement.then):
        own = await server.connection("read").value(server.sql["batch_of"], settlement.id, writing=False)
    then = await prepare_enqueue(server, catalog, settlement.then, own) if settlement.then else None
    return PreparedEnd(server, settlement, then)


async def prepare_enqueue(
    server: Server, catalog: LaneCatalog, jobs: Sequence[NewJob], own: str | None = None
) -> PreparedEnqueue:
    """Make what the jobs need outside of the transaction, so that no other process waits for its end."""
    lanes = await catalog.make_for(jobs, server.connection("enqueue"))
    return PreparedEnqueue(server, catalog, jobs, [lanes[job.queue, job.task, job.priority] for job in jobs], own)


def _state(error: Any) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
