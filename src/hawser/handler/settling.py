"""`ctx.transaction`: the handler's rows, the fence and "done" in one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Protocol

import msgspec

from hawser.errors import ConfigError
from hawser.handler.ledger import StepRules
from hawser.handler.open_time import OpenTime
from hawser.handler.output import RunOutput
from hawser.handler.own_transaction import opened, opened_async
from hawser.job import Claimed, NewJob
from hawser.outcome import MAX_RESULT, Done
from hawser.store import Settlement
from hawser.value.json_value import to_json


class PreparedEnd(Protocol):
    """A settlement that a store has made ready to be written by the handler's own connection."""

    def begin(self, con: Any) -> float | None:
        """The transaction has begun: refuse one that cannot settle this job, before the handler's own rows. For how many
        seconds it may be open, if others cannot write meanwhile."""

    async def abegin(self, con: Any) -> None: ...

    def run(self, con: Any) -> None: ...

    async def arun(self, con: Any) -> None: ...


class SettlingTransaction:
    """What `ctx.transaction(…)` gives: a context manager, plain or asynchronous as the driver is."""

    def __init__(
        self,
        target: Any,
        job: Claimed,
        rules: StepRules,
        then: Callable[[], Sequence[NewJob]],
        output: Callable[[], RunOutput | None],
    ) -> None:
        self._target = target
        self._job = job
        self._rules = rules
        self._then = then
        self._output = output
        self.result: Any = None
        """What the job comes to: set it before the block ends. What the handler returns afterwards is not kept."""
        self.asked = False
        """Whether the job may have been settled: only the store can tell."""
        self.committed = False
        self._plain: AbstractContextManager[Any] | None = None
        self._async: AbstractAsyncContextManager[Any] | None = None

    def __enter__(self) -> Any:
        self._plain = self._run()
        return self._plain.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        assert self._plain is not None
        return self._plain.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:
        self._async = self._arun()
        return await self._async.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(kind, error, trace)

    @contextmanager
    def _run(self) -> Iterator[Any]:
        access = self._rules.access
        # A store that cannot do this says so before anything is written.
        first = None if access is None else access.portal.call(self._prepare(()))
        with OpenTime(self._job, "transaction") as open_time, opened(self._target) as con:
            if first is not None:
                open_time.begun(first.begin(con))
            yield con
            if access is not None:
                prepared = access.portal.call(self._prepare(self._then()))
                self.asked = True
                prepared.run(con)
        self.committed = True

    @asynccontextmanager
    async def _arun(self) -> AsyncIterator[Any]:
        first = None if self._rules.access is None else await self._prepare(())
        async with opened_async(self._target) as con:
            if first is not None:
                await first.abegin(con)
            yield con
            if self._rules.access is not None:
                prepared = await self._prepare(self._then())
                self.asked = True
                await prepared.arun(con)
        self.committed = True

    async def _prepare(self, then: Sequence[NewJob]) -> PreparedEnd:
        assert self._rules.access is not None
        store = await self._rules.access.ready()
        make = getattr(store, "prepare_end", None)
        if make is None:
            raise ConfigError(
                "transaction: only sqlite:/// and postgresql:// stores can settle a job in a transaction of yours; this app has "
                "another store: use ctx.step, or make the effect repeatable"
            )
        result = None if self.result is None else to_json("result", self.result, MAX_RESULT)
        jobs = tuple(msgspec.structs.replace(job, parent_id=self._job.id) for job in then)
        # What was written so far is kept before the job is settled: afterwards nothing is taken of this run.
        output = self._output()
        written = None if output is None else output.pending(self._job)
        settlement = Settlement(self._job.id, self._job.lease, Done(result), jobs, self._rules.kept)
        ready: PreparedEnd = await make(settlement, written)
        return ready
