"""The figures of queues, made from depths, heads and tallies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from hawser.store import (
    QueueStats,
)
from hawser.stores.order import Lane as Waiting
from hawser.stores.postgres.lane_catalog import GROUPED_KIND, CatalogView, Kind, LaneSource
from hawser.stores.tally import attempts_p99, rates


class DepthRows(NamedTuple):
    """How many jobs stand where, by lane and name of the place."""

    now: int
    view: CatalogView
    counts: Mapping[int, Mapping[str, int]]

    def waiting(self, lane: int, *kinds: Waiting) -> int:
        return sum(self.counts.get(lane, {}).get(f"@{kind.name.lower()}", 0) for kind in kinds)

    def paused(self) -> set[str]:
        """The queues whose pause is in force."""
        pauses = self.view.pauses
        return {pause.name for pause in pauses if pause.kind == "queue" and (pause.until is None or pause.until > self.now)}

    def sources(self) -> list[LaneSource]:
        """Where jobs wait."""
        filled = [(lane, kind) for lane in self.counts for kind in Kind if self.waiting(lane, kind.waiting)]
        grouped = [(lane, kind + GROUPED_KIND) for lane, kind in filled if self.view.lanes[lane].grouped]
        return [LaneSource(lane, kind) for lane, kind in (*filled, *grouped)]


class Head(NamedTuple):
    """The first job of one lane and kind of waiting, and how many of its like are due."""

    waiting: Waiting
    run_at: int
    due: int
    exact: bool


class Figures(NamedTuple):
    """What the figures of queues are made of."""

    depths: DepthRows
    heads: Mapping[int, Sequence[Head]]
    sums: Mapping[str, Mapping[str, int]]
    first: int | None
    """The first minute of the last hour in which anything was counted; None when nothing was, of these queues."""
    keys_over: Mapping[str, int]
    paused: set[str]

    def holding(self) -> set[str]:
        """The queues that hold jobs."""
        lanes = self.depths.view.lanes
        return {lanes[lane].queue for lane, counts in self.depths.counts.items() if counts.keys() - {"@keys"}}

    def queues(self) -> set[str]:
        """All queues with any figure."""
        return {*self.depths.view.queues, *self.sums, *self.keys_over, *self.paused}


def stats_of(figures: Figures, queues: Collection[str]) -> QueueStats:
    now = figures.depths.now
    lanes = [lane.id for queue in queues for lane in figures.depths.view.queues.get(queue, ())]
    places, sums, due = Counter[str](), Counter[str](), Counter[Waiting]()
    for lane in lanes:
        places.update(figures.depths.counts.get(lane, {}))
    for queue in queues:
        sums.update(figures.sums.get(queue, {}))
    heads = [head for lane in lanes for head in figures.heads.get(lane, ())]
    for head in heads:
        due[head.waiting] += head.due
    return QueueStats(
        ready=places["@fresh"] + due[Waiting.TIMED],
        scheduled=places["@timed"] - due[Waiting.TIMED] - places["@held"],
        held=places["@held"],
        retrying=places["@retrying"],
        due=places["@fresh"] + due[Waiting.TIMED] + due[Waiting.RETRYING],
        running=places["@running"],
        done=places["@done"],
        dead=places["@dead"],
        cancelled=places["@cancelled"],
        keys=places["@keys"] - sum(figures.keys_over.get(queue, 0) for queue in queues),
        oldest_age_s=(now - min((now, *(head.run_at for head in heads)))) / 1_000_000,
        attempts_p99=attempts_p99(sums),
        rates=rates(sums, now, figures.first),
        paused=not figures.paused.isdisjoint(queues),
        exact=all(head.exact for head in heads),
    )
