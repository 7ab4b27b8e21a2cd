"""One try of a claim: what it knows of lanes and limits, and the statements by which it looks and takes."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Final

from hawser.clock import to_us
from hawser.errors import StoreError
from hawser.store import SETTLE_GRACE, Share
from hawser.stores.order import Entry
from hawser.stores.postgres.contenders import MANY_SOURCES, reaches
from hawser.stores.postgres.frontier import FULL, Frontier, FrontierPlace, columns
from hawser.stores.postgres.lane_catalog import NEVER, CatalogLane, CatalogView, LaneSource, sources
from hawser.stores.postgres.limits import CHANGES, NO_SLACK, LimitRooms
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.server import Server

GRACE: Final = to_us(SETTLE_GRACE)

PEEKED: Final = 8_000
"""Jobs that a claim looks at, over all sources, before it chooses."""

SEQ, RUN_AT = 3, 9
"""Places in the answer of `take` and its like. By name each look would cost twice as much."""

_by_due: Final = itemgetter(RUN_AT, SEQ)

NOWHERE_ELSE: Final[Mapping[LaneSource, FrontierPlace]] = {}

FEWEST: Final = 32
"""Jobs of one source that it looks at however many sources there are."""


class Taken:
    """What one statement took, and what it learnt."""

    def __init__(self, rows: Sequence[Any]) -> None:
        first = rows[0]
        self.now, self.version, self.mixed = first["now"], first["version"], first["mixed"]
        # A statement that took nothing answers with a row that has no job. So does one under limits in any case, before its jobs.
        self.rows = [row for row in rows if row[SEQ] is not None]


class ClaimTry:
    """One try of a claim: what it knows, and what it learns of the store's time and number."""

    def __init__(
        self,
        server: Server,
        frontier: Frontier,
        view: CatalogView,
        lanes: Sequence[CatalogLane],
        worker: str,
        lease_us: int,
        without: Sequence[str],
    ) -> None:
        self.view = view
        self.lanes = lanes
        self.sources = dict.fromkeys(sources(lanes))
        self.now = 0
        self.version = view.version
        self._server = server
        self._frontier = frontier
        self._worker = worker
        self._lease_us = lease_us
        self._without = without
        self.limits: LimitRooms | None = None
        self.missed_meter = False
        """Whether a meter was not where this claim waited for it."""
        self.good_until = NEVER
        """When the next pause ends: then other lanes are open."""

    @cached_property
    def by_queue(self) -> Mapping[str, Sequence[CatalogLane]]:
        """Its lanes, highest priority first."""
        found: dict[str, list[CatalogLane]] = {}
        for lane in self.lanes:
            found.setdefault(lane.queue, []).append(lane)
        return found

    @property
    def connection(self) -> ManagedConnection:
        return self._server.connection("claim")

    @property
    def sql(self) -> Mapping[str, str]:
        return self._server.sql

    @property
    def given(self) -> int | None:
        return self._server.given

    @property
    def terms(self) -> tuple[str, int, int, Sequence[str]]:
        """What holds for every job that it takes."""
        return self._worker, self._lease_us, GRACE, self._without

    @property
    def is_good(self) -> bool:
        """Whether lanes and pauses were as the claim took them to be."""
        return self.version == self.view.version and self.now < self.good_until

    async def take_alone(self, alone: LaneSource, places: int) -> Taken:
        """Take from one source, if no other has a due job."""
        begin = self._frontier.on(alone)
        taken = await self._take({**dict.fromkeys(self.sources, 0), alone: places}, {alone: begin})
        taken.rows.sort(key=_by_due)
        self._frontier.ended(alone, FrontierPlace(*_by_due(taken.rows[-1])) if len(taken.rows) == places >= FULL else None)
        if not taken.mixed and self.is_good:
            if not taken.rows and begin > self._frontier.of(alone):
                return await self.take_alone(alone, places)
            first = FrontierPlace(*_by_due(taken.rows[0])) if taken.rows else FrontierPlace(self.now, 0)
            for source in self.sources:
                self._frontier.saw(source, first if source == alone else FrontierPlace(self.now, 0))
        return taken

    async def take_leading(self, leading: LaneSource, places: int, aged: int) -> Taken:
        """Take from the one source of its queue's highest priority that has due jobs, if nothing else does but lower priorities
        there. `aged` places go first to one of these whose jobs have aged; the answer has them first."""
        queue, priority = (lane := self.view.lanes[leading.lane]).queue, lane.priority
        below = {each.id: each.priority for each in self.lanes if each.queue == queue and each.priority < priority}
        sources: dict[LaneSource, int | None] = {each: 0 for each in self.sources if each.lane not in below}
        begin = self._frontier.on(leading)
        if aged:
            sources |= {each: None for each in self.sources if each.lane in below}
            after = self.view.ageing_of(queue)
            more = [below.get(each.lane) for each in sources], aged, after
            taken = await self._take({**sources, leading: places}, {leading: begin}, "take_with_aged", more)
        else:
            taken = await self._take({**sources, leading: places}, {leading: begin})
        taken.rows.sort(key=lambda row: (row["lane"] == leading.lane, *_by_due(row)))
        own = [row for row in taken.rows if row["lane"] == leading.lane]
        full = len(taken.rows) == places and len(own) >= FULL
        self._frontier.ended(leading, FrontierPlace(*_by_due(own[-1])) if full else None)
        if not taken.mixed and self.is_good:
            if not taken.rows and begin > self._frontier.of(leading):
                return await self.take_leading(leading, places, aged)
            for source, most in sources.items():
                if most == 0 and source != leading:
                    self._frontier.saw(source, FrontierPlace(self.now, 0))
            if own:
                self._frontier.saw(leading, FrontierPlace(*_by_due(own[0])))
        return taken

    async def look(self, shares: Sequence[Share], limit: int, room: Container[str]) -> dict[LaneSource, list[Entry]]:
        """The due jobs of all sources, as far as the claim may take them. `room`: tasks of which it may not take all."""
        if len(self.sources) <= MANY_SOURCES:
            return await self._peek(min(limit, max(FEWEST, PEEKED // max(1, len(self.sources)))))
        found = await self._peek(1)
        heads = {source: FrontierPlace(*entries[0][:2]) for source, entries in found.items()}
        further = reaches(heads, self.view.lanes, shares, limit, room) if self.is_good else {}
        if not further:
            return found
        each = max(FEWEST, PEEKED // len(self.sources))
        ends, most, merged = zip(*further.values(), strict=True)
        lanes, kinds = [source.lane for source in further], [source.kind for source in further]
        begins = columns([heads[source] for source in further])
        asked = (self.view.version, lanes, kinds, *begins, *columns(ends), most, merged, each)
        began = time.monotonic()
        statement, terms = self._server.sql["peek_further"], (self.good_until, self._without)
        rows = await self.connection.rows(statement, self._server.given, *asked, *terms, writing=False)
        self.learn(rows[0][0], rows[0][1], began)
        order = list(further)
        for _, _, n, run_at, seq in rows:
            if n is not None:
                found[order[n - 1]].append((run_at, seq, order[n - 1]))
        return found

    async def _peek(self, each: int) -> dict[LaneSource, list[Entry]]:
        """The heads of all sources that have due jobs, so many of each: due time, order, source."""
        asked = self._asked(self.sources)
        connection, statement = self._server.connection("claim"), self._server.sql["peek"]
        began = time.monotonic()
        asked_of = (self.view.version, *asked, each, self.good_until, self._without)
        rows = await connection.rows(statement, self._server.given, *asked_of, writing=False)
        self.learn(rows[0][0], rows[0][1], began)
        order = list(self.sources)
        found: dict[LaneSource, list[Entry]] = {}
        for _, _, n, run_at, seq in rows:
            if n is not None:
                found.setdefault(order[n - 1], []).append((run_at, seq, order[n - 1]))
        if self.is_good:
            for source in self.sources:
                self._frontier.saw(
                    source, FrontierPlace(*found[source][0][:2]) if source in found else FrontierPlace(self.now, 0)
                )
        return found

    def all_sources(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Its sources, and from where on a claim looks there."""
        return self._asked(self.sources)

    def saw_none(self) -> None:
        """No source had a due job."""
        for source in self.sources:
            self._frontier.saw(source, FrontierPlace(self.now, 0))

    async def take(self, chosen: Sequence[Entry], *, keeping: bool = False) -> list[Any]:
        """Take from each source as many as were chosen there, and give them in the order of the choice.

        `keeping`: other jobs were taken already, and must reach the caller whatever happens.
        """
        places: dict[LaneSource, int] = {}
        for _, _, source in chosen:
            places[source] = places.get(source, 0) + 1
        probes = {source: n for source, n in places.items() if self.view.lanes[source.lane].task in self.view.probes}
        limited = {source: n for source, n in places.items() if source.lane in self.view.limited and source not in probes}
        plain = {source: n for source, n in places.items() if source not in limited and source not in probes}
        try:
            rows = (await self._take(plain)).rows if plain else []
        except StoreError:
            if keeping:
                return []
            raise
        if limited and self.is_good:
            rows = [*rows, *await self._take_limited(limited, keeping=keeping or bool(rows))]
        for source in probes if self.is_good else ():
            task, held = self.view.lanes[source.lane].task, keeping or bool(rows)
            rows = [*rows, *await self._take_limited({source: 1}, keeping=held, probed=task)]
        order = {seq: n for n, (_, seq, _) in enumerate(chosen)}
        return sorted(rows, key=lambda row: (order.get(row["seq"], len(order)), *_by_due(row)))

    async def _take(
        self,
        places: Mapping[LaneSource, int | None],
        begin: Mapping[LaneSource, FrontierPlace] = NOWHERE_ELSE,
        name: str = "take",
        more: Sequence[Any] = (),
    ) -> Taken:
        asked = (
            *self._asked(places, begin),
            list(places.values()),
            self._worker,
            self._lease_us,
            GRACE,
            self.good_until,
            self._without,
            *more,
        )
        connection, statement = self._server.connection("claim"), self._server.sql[name]
        began = time.monotonic()
        taken = Taken(await connection.rows(statement, self._server.given, self.view.version, *asked))
        self.learn(taken.now, taken.version, began)
        return taken

    def is_bound(self, source: LaneSource) -> bool:
        """Whether a limit or an open breaker has a say in what is taken from a source."""
        return source.lane in self.view.limited or self.view.lanes[source.lane].task in self.view.probes

    async def _take_limited(self, places: Mapping[LaneSource, int], *, keeping: bool, probed: str | None = None) -> list[Any]:
        """Take from sources that have limits, or the probe of a task whose breaker is open. `keeping`: jobs were taken already,
        and must reach the caller whatever happens."""
        assert self.limits is not None
        limits = self.limits.of(self.view, [source.lane for source in places])
        whom = self._worker, self._lease_us, GRACE, self.good_until, self._without
        asked = (*self._asked(places), list(places.values()), *whom, *limits, NO_SLACK, CHANGES)
        connection, statement = (
            self._server.connection("claim"),
            self._server.sql["take_limited" if probed is None else "take_probe"],
        )
        began = time.monotonic()
        whose = () if probed is None else (probed,)
        try:
            rows = await connection.rows(statement, *whose, self._server.given, self.view.version, *asked)
        except StoreError:
            if keeping:
                return []
            raise
        taken = Taken(rows)
        if taken.mixed:
            # A meter began its next epoch while this claim waited for it.
            self.limits.lost(limits.meters)
            self.missed_meter = True
        self.learn(taken.now, self.version if keeping else taken.version, began)
        return taken.rows

    def _asked(
        self, places: Mapping[LaneSource, Any], begin: Mapping[LaneSource, FrontierPlace] = NOWHERE_ELSE
    ) -> tuple[list[int], list[int], list[int], list[int]]:
        starts = columns([begin[source] if source in begin else self._frontier.of(source) for source in places])
        return [source.lane for source in places], [source.kind for source in places], *starts

    def learn(self, now: int, version: int, asked: float) -> None:
        self.now, self.version = now, version
        self._server.saw(now)
        self._frontier.at(now, asked)
