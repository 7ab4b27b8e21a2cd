"""Of very many sources, how far into each a claim may come: the jobs behind the others need not be read.

Under the rule of `stores.order` a level that gives so many jobs takes none that stands behind as many heads, and none of a source
that had to wait behind as many heads of such sources. A task whose room is small may be passed over, so its heads do not count.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final, NamedTuple

from hawser.store import Share
from hawser.stores.postgres.frontier import FrontierPlace
from hawser.stores.postgres.lane_catalog import NEVER, CatalogLane, Kind, LaneSource

MANY_SOURCES: Final = 4 * 32
"""Sources, four a lane: with more, a claim looks at their heads first. Of fewer it reads all in one round trip."""

END: Final = FrontierPlace(NEVER, NEVER)


class Reach(NamedTuple):
    """How far a claim may come into a source."""

    end: FrontierPlace
    most: int
    """Jobs."""
    merged: int | None
    """Sources of the same number give no more than so many together: the first of all of them. None: this one is by itself."""


class Contender(NamedTuple):
    """A source that has a due job, as a level sees it."""

    head: FrontierPlace
    source: LaneSource
    counts: bool
    """Whether its jobs are surely taken before what stands behind them."""

    @property
    def waited(self) -> bool:
        return self.source.kind in (Kind.TIMED, Kind.RETRYING)


def reaches(
    heads: Mapping[LaneSource, FrontierPlace],
    lanes: Mapping[int, CatalogLane],
    shares: Sequence[Share],
    limit: int,
    room: Container[str],
) -> dict[LaneSource, Reach]:
    """Those of the sources in which a claim may come further than to their head."""
    levels: dict[tuple[str, int], list[Contender]] = {}
    sure: dict[str, int] = {}
    for source, head in heads.items():
        lane = lanes[source.lane]
        counts = lane.task not in room
        levels.setdefault((lane.queue, lane.priority), []).append(Contender(head, source, counts))
        sure[lane.queue] = sure.get(lane.queue, 0) + counts
    found: dict[LaneSource, Reach] = {}
    wanted = most_of_queues(shares, limit, sure)
    number = 0
    for (queue, _), level in levels.items():
        most = wanted.get(queue, 0)
        if most > 0:
            level.sort()
            end = _end(level, most)
            waited = [each for each in level if each.waited]
            end_of_waited = max(end, _end(waited, most))
            number += 2
            for each in level:
                last = end_of_waited if each.waited else end
                if each.head < last and most > 1:
                    found[each.source] = Reach(last, most, number + each.waited if each.counts else None)
    return found


def _end(level: Sequence[Contender], most: int) -> FrontierPlace:
    """Behind which place nothing of these is taken."""
    counted = [each.head for each in level if each.counts]
    return counted[most - 1] if len(counted) >= most else END


def most_of_queues(shares: Sequence[Share], limit: int, sure: Mapping[str, int]) -> dict[str, int]:
    """What each queue may give to a claim at the most; `sure` are jobs that it gives as soon as it is offered places."""
    free, most, given = limit, dict.fromkeys((share.queue for share in shares), 0), dict.fromkeys(sure, 0)
    for first in (True, False):
        for share in shares:
            queue = share.queue
            offered = min(free, share.places) if first and share.places is not None else free
            if share.most is not None:
                offered = min(offered, max(0, share.most - given.get(queue, 0)))
            most[queue] = min(limit, most[queue] + offered)
            gives = min(offered, sure.get(queue, 0) - given.get(queue, 0))
            given[queue] = given.get(queue, 0) + gives
            free -= gives
    return most
