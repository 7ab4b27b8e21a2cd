"""What charts and alarms ask for: where jobs wait, and what happened minute by minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from hawser.job import State
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup, TaskDepth
from hawser.stores.order import Lane as Waiting
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.queries import Queries
from hawser.stores.postgres.server import Server
from hawser.stores.tally import event_of, rolled, times_of

_PRIORITY = 5
"""Of the lane that measured times are counted under: rollups do not tell priorities apart."""


class Charts:
    """Reads beside the operator's, and the one write of what workers measured."""

    def __init__(self, server: Server, catalog: LaneCatalog, queries: Queries) -> None:
        self._server = server
        self._catalog = catalog
        self._queries = queries

    async def lanes(self) -> list[LaneDepth]:
        depths, heads = await self._queries.depths_and_heads()
        waiting = {depths.view.lanes[lane]: depths.waiting(lane, *Waiting) for lane in depths.counts}
        return [
            LaneDepth(
                queue=lane.queue,
                task=lane.task,
                priority=lane.priority,
                waiting=waiting[lane],
                oldest_age_s=(depths.now - min((depths.now, *(head.run_at for head in heads.get(lane.id, ()))))) / 1_000_000,
            )
            for lane in sorted(waiting, key=lambda lane: (lane.queue, lane.task, lane.priority))
            if waiting[lane] > 0
        ]

    async def task_depths(self) -> list[TaskDepth]:
        depths = await self._queries.depths()
        counts: Counter[tuple[str, str, State]] = Counter()
        for number, places in depths.counts.items():
            lane = depths.view.lanes[number]
            counts[lane.queue, lane.task, State.READY] += depths.waiting(number, *Waiting)
            for state in (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED):
                counts[lane.queue, lane.task, state] += places.get(f"@{state}", 0)
        return [TaskDepth(*where, count) for where, count in counts.items() if count > 0]

    async def measure(self, measured: Sequence[Measured]) -> None:
        if measured:
            connection = self._server.connection("keep")
            ids = await self._catalog.make({(each.queue, each.task, _PRIORITY) for each in measured}, connection)
            asked = (
                [ids[each.queue, each.task, _PRIORITY] for each in measured],
                [event_of(each) for each in measured],
                [each.count for each in measured],
            )
            await connection.rows(self._server.sql["count"], self._server.given, *asked)

    async def rollups(self, minutes: int, queue: str | None, task: str | None) -> list[Rollup]:
        connection, asked = self._server.connection("read"), (self._server.given, minutes, queue, task)
        [(now, counted)] = await connection.rows(self._server.sql["rollups"], *asked, writing=False)
        return rolled(msgspec.json.decode(counted or "[]", type=list[tuple[int, str, int]]), now, minutes)

    async def times(self, minutes: int, queue: str | None) -> list[Measured]:
        asked = (self._server.given, minutes, queue)
        rows = await self._server.connection("read").rows(self._server.sql["times"], *asked, writing=False)
        return times_of(tuple(row) for row in rows)

    async def event_counts(self, minutes: int, events: Sequence[str], back: int = 0) -> list[EventCount]:
        asked = (self._server.given, minutes, list(events), back)
        rows = await self._server.connection("read").rows(self._server.sql["event_counts"], *asked, writing=False)
        return [EventCount(*row) for row in rows]
