"""Claims where some jobs have groups: the database decides whose turn it is, under a lock of the queue.

Jobs without a group are chosen and taken as everywhere; the database says how many places are their turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hawser.store import Share
from hawser.stores.order import Entry, aged_level, due_since, fill_aged, pick, reserved
from hawser.stores.postgres.lane_catalog import CatalogLane, Kind, LaneSource
from hawser.stores.postgres.limits import CHANGES, NO_SLACK

if TYPE_CHECKING:
    from hawser.stores.postgres.taking import ClaimTry


OTHERS_ARE_DUE: Final = -2
"""What `serve_turns` says in place of the places of jobs without a group, see there."""

NO_SOURCES: Final[tuple[list[int], ...]] = ([], [], [], [])


class Heads:
    """A source's due jobs as a claim saw them, in the shape that `choose` takes from."""

    __slots__ = ("_entries", "_next", "head", "task", "waited")

    def __init__(self, task: str, kind: Kind, entries: list[Entry]) -> None:
        self.task = task
        self.waited = kind in (Kind.TIMED, Kind.RETRYING)
        self._entries = entries
        self._next = 1
        self.head: Entry | None = entries[0]

    @property
    def begin(self) -> Entry | None:
        return self.head

    @property
    def size(self) -> int:
        """Jobs that it has left to give."""
        return len(self._entries) - self._next + 1

    def pop(self) -> None:
        self.head = self._entries[self._next] if self._next < len(self._entries) else None
        self._next += 1


class ClaimLevel(NamedTuple):
    """One priority of a queue."""

    sources: list[Heads]
    """The due jobs without a group."""
    grouped: list[CatalogLane]
    """The lanes that may have jobs with one."""
    probed: list[CatalogLane]
    """Those of them whose task may start one job, since its breaker is open."""


Levels = Mapping[int, ClaimLevel]
"""By priority, highest first."""


def levels_by_priority(claim: ClaimTry, queue: str, found: Mapping[LaneSource, list[Entry]]) -> Levels:
    """What a claim found of a queue, by priority, highest first."""
    levels: dict[int, ClaimLevel] = {}
    for lane in claim.by_queue.get(queue, ()):
        level = levels.setdefault(lane.priority, ClaimLevel([], [], []))
        named = [(kind, LaneSource(lane.id, kind)) for kind in Kind]
        level.sources.extend(Heads(lane.task, kind, found[source]) for kind, source in named if source in found)
        if lane.grouped:
            (level.probed if lane.task in claim.view.probes else level.grouped).append(lane)
    return levels


class TurnClaims:
    """What one process knows of turns."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        """By lane the lowest turn that stood there; turns only rise. Claims need not read past those that are over."""

    def forget(self) -> None:
        """Another server may answer now, where turns are lower."""
        self._first.clear()

    def first(self, lanes: Iterable[int]) -> list[int]:
        """From which turn on to look, by lane."""
        return [self._first.get(lane, 0) for lane in lanes]

    async def take_alone(
        self, claim: ClaimTry, shares: Sequence[Share], room: dict[str, int], limit: int
    ) -> Sequence[Any] | None:
        """Take from groups where nothing else is due, which it finds out as it takes; None if there is more to choose from."""
        if len(shares) != 1:
            return None
        [share] = shares
        levels = levels_by_priority(claim, share.queue, {})
        if len(levels) != 1:
            return None
        [(priority, level)] = levels.items()
        if level.probed or not any(room.get(lane.task, 1) > 0 for lane in level.grouped):
            return None
        places = limit if share.most is None else min(limit, share.most)
        taken = await self.take(claim, TurnPlaces(share.queue, priority, level.grouped, 0, room), places, alone=True)
        if taken.mixed or claim.missed_meter:
            return None  # a meter may be gone with its limit: the look sees whether the catalog has changed
        if claim.is_good:
            claim.saw_none()
        return taken.rows

    async def take(
        self, claim: ClaimTry, level: TurnPlaces, places: int, probed: str | None = None, *, alone: bool = False
    ) -> TurnsTaken:
        """Take jobs with groups of one queue and priority, by turns, or the probe of a task; `alone`: if no other job is due."""
        lanes = [lane for lane in level.lanes if level.room.get(lane.task, 1) > 0]
        assert claim.limits is not None
        limits = claim.limits.of_turns(claim.view, lanes)
        asked = (
            *(claim.view.version, claim.good_until, level.queue, level.priority, [lane.id for lane in lanes]),
            [level.room.get(lane.task) for lane in lanes],
            self.first(lane.id for lane in lanes),
            *(places, level.ungrouped, *claim.terms, *limits, NO_SLACK, CHANGES),
        )
        began = time.monotonic()
        if probed is None:
            others = claim.all_sources() if alone else NO_SOURCES
            [head] = await claim.connection.rows(claim.sql["take_turns"], claim.given, *asked, *others)
        else:
            [head] = await claim.connection.rows(claim.sql["probe_turns"], probed, claim.given, *asked)
        claim.learn(head["now"], head["version"], began)
        if head["ungrouped"] == OTHERS_ARE_DUE:
            return TurnsTaken(0, [], mixed=True)
        if head["ungrouped"] is None or head["ungrouped"] < 0:
            if head["ungrouped"] is not None:
                claim.limits.lost(limits.meters)
                claim.missed_meter = True
            return TurnsTaken(0, [])
        self._first.update(zip((lane.id for lane in lanes), head["first_turns"], strict=True))
        if not head["seqs"]:
            return TurnsTaken(head["ungrouped"], [])
        order = {seq: n for n, seq in enumerate(head["seqs"])}
        jobs = await claim.connection.rows(claim.sql["given_out"], head["ids"], head["leases"], writing=False)
        return TurnsTaken(head["ungrouped"], sorted(jobs, key=lambda row: order[row["seq"]]))


class TurnPlaces:
    """A level of a claim: one queue and priority, what is due there, and the room of its tasks."""

    def __init__(self, queue: str, priority: int, lanes: Sequence[CatalogLane], ungrouped: int, room: Mapping[str, int]) -> None:
        self.queue = queue
        self.priority = priority
        self.lanes = lanes
        self.ungrouped = ungrouped
        """Jobs without a group that are due, as far as the claim looked."""
        self.room = room


class TurnsTaken:
    """What a claim took by turns, and the places that are the turn of jobs without a group."""

    def __init__(self, ungrouped: int, rows: Sequence[Any], *, mixed: bool = False) -> None:
        self.ungrouped = ungrouped
        self.rows = rows
        self.mixed = mixed
        """Whether it took nothing, since jobs without a group are due."""


class TurnChoice:
    """One claim over queues of which some have groups: the rule of `order.choose`, where some levels are taken by turns."""

    def __init__(self, turns: TurnClaims, claim: ClaimTry, turn: int, room: dict[str, int]) -> None:
        self.rows: list[Any] = []
        """Jobs with a group; they are taken."""
        self.chosen: list[Entry] = []
        """Jobs without one; they are to be taken."""
        self.order: dict[int, int] = {}
        """Where each job stands in the answer, by its order of insertion."""
        self._turns = turns
        self._claim = claim
        self._turn = turn
        self._room = room

    @property
    def size(self) -> int:
        return len(self.rows) + len(self.chosen)

    async def offer_all(self, shares: Sequence[Share], limit: int, levels: Mapping[str, Levels]) -> None:
        left = {share.queue: share.most for share in shares if share.most is not None}

        async def offer(queue: str, places: int) -> None:
            before, places = self.size, min(places, left.get(queue, places))
            await self._offer_aged(queue, levels[queue], reserved(places, self._turn))
            for priority, level in levels[queue].items():
                for lane in level.probed:
                    await self._probe(TurnPlaces(queue, priority, [lane], 0, self._room), places - (self.size - before))
                open_places = places - (self.size - before)
                if open_places > 0 and self._claim.is_good:
                    await self._offer(TurnPlaces(queue, priority, level.grouped, 0, self._room), level.sources, open_places)
            if queue in left:
                left[queue] -= self.size - before

        for share in shares:
            free = limit - self.size
            await offer(share.queue, free if share.places is None else min(free, share.places))
        for share in shares:
            await offer(share.queue, limit - self.size)

    async def _offer_aged(self, queue: str, levels: Levels, places: int) -> None:
        """A tenth of the places goes first to a lower priority that has waited for very long."""
        after = self._claim.view.ageing_of(queue)
        if places <= 0 or len(levels) < 2 or after is None or not self._claim.is_good:
            return
        now, room = self._claim.now, self._room
        lanes = {lane.id: p for p, level in levels.items() for lane in level.grouped if room.get(lane.task, 1) > 0}
        since = await self._groups_since(lanes)
        dues = [(p, _earliest(due_since(level.sources, now, room), since.get(p))) for p, level in levels.items()]
        priority = aged_level(dues, now - after)
        if priority is None:
            return
        level = levels[priority]
        if priority in lanes.values():
            await self._offer(TurnPlaces(queue, priority, level.grouped, 0, room), level.sources, places)
        else:
            self._choose(fill_aged(level.sources, places, now - after, room))

    async def _groups_since(self, lanes: Mapping[int, int]) -> dict[int, int]:
        """By priority since when jobs of groups are due; of lanes with their priorities."""
        since: dict[int, int] = {}
        asked = (self._claim.now, list(lanes), self._turns.first(lanes))
        for lane, due in (
            await self._claim.connection.rows(self._claim.sql["groups_due_since"], *asked, writing=False) if lanes else ()
        ):
            if due is not None:
                since[lanes[lane]] = min(due, since.get(lanes[lane], due))
        return since

    async def _probe(self, level: TurnPlaces, places: int) -> None:
        [lane] = level.lanes
        if places > 0 and self._claim.is_good and self._room.get(lane.task, 1) > 0:
            self._keep(await self._turns.take(self._claim, level, 1, lane.task))

    def _keep(self, taken: TurnsTaken) -> None:
        self.rows += taken.rows
        for row in taken.rows:
            self.order[row["seq"]] = len(self.order)
            task = self._claim.view.lanes[row["lane"]].task
            if task in self._room:
                self._room[task] -= 1

    async def _offer(self, level: TurnPlaces, sources: list[Heads], places: int) -> None:
        if any(self._room.get(lane.task, 1) > 0 for lane in level.lanes):
            level.ungrouped = min(places, sum(source.size for source in sources))
            taken = await self._turns.take(self._claim, level, places)
            self._keep(taken)
            places = taken.ungrouped
        picked = pick(sources, places, self._turn, self._claim.now, self._room)
        self._choose(picked)

    def _choose(self, picked: Sequence[Entry]) -> None:
        self.order.update({entry[1]: len(self.order) + n for n, entry in enumerate(picked)})
        self.chosen += picked


def _earliest(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)
