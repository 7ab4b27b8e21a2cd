"""What charts and alarms ask for: where jobs wait, and what happened minute by minute."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup
from hawser.stores.order import Lane as Waiting
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.queries import Queries
from hawser.stores.postgres.server import Server
from hawser.stores.tally import event_of, rolled

_PRIORITY = 5
"""Of the lane that measured times are counted under: rollups do not tell priorities apart."""


class Charts:
    """Reads beside the operator's, and the one write of what workers measured."""

    def __init__(self, server: Server, directory: LaneCatalog, queries: Queries) -> None:
        self._server = server
        self._directory = directory
        self._queries = queries

    async def lanes(self) -> list[LaneDepth]:
        depths = await self._queries.depths()
        heads = await self._queries.heads(depths, 0)
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

    async def measure(self, measured: Sequence[Measured]) -> None:
        if measured:
            line = self._server.line("keep")
            ids = await self._directory.make({(each.queue, each.task, _PRIORITY) for each in measured}, line)
            asked = (
                [ids[each.queue, each.task, _PRIORITY] for each in measured],
                [event_of(each) for each in measured],
                [each.count for each in measured],
            )
            await line.rows(self._server.sql["count"], self._server.given, *asked)

    async def rollups(self, minutes: int, queue: str | None, task: str | None) -> list[Rollup]:
        line, asked = self._server.line("read"), (self._server.given, minutes, queue, task)
        [(now, counted)] = await line.rows(self._server.sql["rollups"], *asked, writing=False)
        return rolled(msgspec.json.decode(counted or "[]", type=list[tuple[int, str, int]]), now, minutes)

    async def event_counts(self, minutes: int, events: Sequence[str]) -> list[EventCount]:
        asked = (self._server.given, minutes, list(events))
        rows = await self._server.line("read").rows(self._server.sql["event_counts"], *asked, writing=False)
        return [EventCount(*row) for row in rows]
