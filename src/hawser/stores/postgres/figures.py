"""The figures of queues, made from depths, heads and tallies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from hawser.store import (
    QueueStats,
)
from hawser.stores.order import Lane as Waiting
from hawser.stores.postgres.lane_catalog import GROUPED_KIND, CatalogView, Kind
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


def depth_rows(now: int, view: CatalogView, told: str | None) -> DepthRows:
    """From the counts as the database tells them. A lane that is not in the view was made since."""
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for lane, name, count in msgspec.json.decode(told or "[]", type=list[tuple[int, str, int]]):
        if lane in view.lanes:
            counts[lane][name] = count
    return DepthRows(now, view, counts)


def heads_of(depths: DepthRows, told: str | None, counted: int) -> dict[int, list[Head]]:
    """By lane: the first job of each kind of waiting, and how many are due, where they are no more than were counted."""
    heads: defaultdict[int, list[Head]] = defaultdict(list)
    for lane, kind, run_at, past, later in msgspec.json.decode(told or "[]", type=list[tuple[int, int, int, int, int]]):
        if lane not in depths.counts:
            continue
        waiting = Kind(kind % GROUPED_KIND).waiting
        if waiting is Waiting.FRESH:
            heads[lane].append(Head(waiting, run_at, 0, exact=True))
        elif past < counted or later == counted or depths.view.lanes[lane].grouped:
            heads[lane].append(Head(waiting, run_at, past, exact=past < counted))
        else:
            # Fewer wait for their time than are past it: those were counted.
            heads[lane].append(Head(waiting, run_at, depths.waiting(lane, waiting) - later, exact=True))
    return heads


def sums_of(told: str | None) -> dict[str, dict[str, int]]:
    """How often what happened, by queue and event."""
    sums: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for queue, event, count in msgspec.json.decode(told or "[]", type=list[tuple[str, str, int]]):
        sums[queue][event] = count
    return sums


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
