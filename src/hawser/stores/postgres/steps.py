"""The steps of jobs, in the PostgreSQL store. Calls that come while a write is under way go together in the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from hawser.batcher import Batcher
from hawser.clock import to_us
from hawser.errors import StoreUnavailable
from hawser.store import Arrival, NewStep, RecordedStep
from hawser.stores.postgres.server import Server
from hawser.stores.steps import step_of
from hawser.value.ids import is_id

STEPS_PER_WRITE: Final = 500
"""Steps in one write."""

Answers = list[RecordedStep | None]


class WaitingSteps(NamedTuple):
    """A call whose steps are not written yet."""

    steps: Sequence[NewStep]
    answer: asyncio.Future[Answers]


class StepStatements:
    """What handlers of one process have achieved."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._writers: dict[int, StepWriter] = {}

    async def record(self, steps: Sequence[NewStep]) -> Answers:
        loop = asyncio.get_running_loop()
        writer = self._writers.get(id(loop))
        if writer is None or writer.loop is not loop:
            writer = self._writers[id(loop)] = StepWriter(self._server, loop)
        return await writer.put(steps)

    async def arrive(self, arrival: Arrival) -> RecordedStep | None:
        if not is_id(arrival.id):
            return None
        server = self._server
        asked = server.given, arrival.id, arrival.lease, arrival.name, arrival.event, arrival.value
        rows = await server.connection("steps").rows(server.sql["come_to"], *asked)
        return step_of(rows[0][1:], rows[0][0]) if rows else None

    async def of(self, id: str) -> list[RecordedStep]:
        if not is_id(id):
            return []
        rows = await self._server.connection("read").rows(self._server.sql["steps"], self._server.given, id, writing=False)
        return [step_of(row[1:], row[0]) for row in rows]


class StepWriter:
    """The records of one event loop, one write at a time."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._server = server
        self._waiting: Batcher[WaitingSteps] = Batcher(STEPS_PER_WRITE, size=lambda call: len(call.steps))
        self._writing: asyncio.Task[None] | None = None

    async def put(self, steps: Sequence[NewStep]) -> Answers:
        mine = WaitingSteps(steps, self.loop.create_future())
        self._waiting.add(mine)
        if self._writing is None or self._writing.done():
            self._writing = self.loop.create_task(self._write_all())
        return await mine.answer

    async def _write_all(self) -> None:
        while calls := self._waiting.take():
            try:
                answers = await self._write([step for call in calls for step in call.steps])
            except BaseException as error:
                refused = error if isinstance(error, Exception) else StoreUnavailable("the store was closed")
                for call in calls:
                    if not call.answer.done():
                        call.answer.set_exception(refused)
                if not isinstance(error, Exception):
                    raise
                continue
            done = 0
            for call in calls:
                if not call.answer.done():
                    call.answer.set_result(answers[done : done + len(call.steps)])
                done += len(call.steps)

    async def _write(self, steps: Sequence[NewStep]) -> Answers:
        """A name that stands twice is written by the first."""
        first: dict[tuple[str, int, str], NewStep] = {}
        for step in steps:
            if is_id(step.id):
                first.setdefault((step.id, step.lease, step.name), step)
        if not first:
            return [None] * len(steps)
        ordered = sorted(first.values(), key=lambda step: step.id)
        asked = (
            [step.id for step in ordered],
            [step.lease for step in ordered],
            [step.name for step in ordered],
            [step.kind for step in ordered],
            [step.value for step in ordered],
            [None if step.lasts is None else to_us(step.lasts) for step in ordered],
        )
        server, connection = self._server, self._server.connection("steps")
        found: dict[tuple[str, int, str], RecordedStep] = {}
        for n, now, *row in await connection.rows(server.sql["record_steps"], server.given, *asked):
            step = ordered[n - 1]
            if row[0] is None:
                # Another call of the same run was quicker, by so little that this statement does not see it.
                asked_again = server.given, step.id, step.name
                [(now, *row)] = await connection.rows(server.sql["recorded_step"], *asked_again, writing=False)  # noqa: PLW2901
            found[step.id, step.lease, step.name] = step_of(row, now)
        return [found.get((step.id, step.lease, step.name)) for step in steps]
