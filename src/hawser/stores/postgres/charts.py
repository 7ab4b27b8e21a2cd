"""What charts and alarms ask for: where jobs wait, and what happened minute by minute."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hawser.history import LaneDepth, Measured, Rollup
from hawser.stores.order import Lane as Waiting
from hawser.stores.postgres.directory import Directory, Lane, sources
from hawser.stores.postgres.queries import Figures, Queries
from hawser.stores.postgres.server import Server
from hawser.stores.tally import event_of, rolled

_PRIORITY = 5
"""Of the lane that measured times are counted under: rollups do not tell priorities apart."""


class Charts:
    """Reads beside the operator's, and the one write of what workers measured."""

    def __init__(self, server: Server, directory: Directory, queries: Queries) -> None:
        self._server = server
        self._directory = directory
        self._queries = queries

    async def lanes(self) -> list[LaneDepth]:
        figures = await self._queries.figures()
        waiting = {lane.id: _waiting(figures, lane) for lane in figures.view.lanes.values()}
        held = sorted(
            (lane for lane in figures.view.lanes.values() if waiting[lane.id] > 0),
            key=lambda lane: (lane.queue, lane.task, lane.priority),
        )
        oldest = await self._oldest(figures, held)
        return [
            LaneDepth(
                queue=lane.queue,
                task=lane.task,
                priority=lane.priority,
                waiting=waiting[lane.id],
                oldest_age_s=max(0.0, (figures.now - oldest.get(lane.id, figures.now)) / 1_000_000),
            )
            for lane in held
        ]

    async def _oldest(self, figures: Figures, lanes: Sequence[Lane]) -> dict[int, int]:
        """When the first job of each lane is due."""
        places = sources(lanes)
        oldest: dict[int, int] = {}
        if places:
            asked = [source.lane for source in places], [source.kind for source in places]
            line = self._server.line("read")
            for n, run_at, *_ in await line.rows(self._server.sql["heads"], figures.now, *asked, 0, writing=False):
                lane = places[n - 1].lane
                oldest[lane] = min(run_at, oldest.get(lane, run_at))
        return oldest

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


def _waiting(figures: Figures, lane: Lane) -> int:
    return sum(figures.counts.get((lane.id, f"@{waiting.name.lower()}"), 0) for waiting in Waiting)
