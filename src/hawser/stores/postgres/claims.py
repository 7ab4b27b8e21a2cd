"""Claim. When one source alone has due jobs, which a claim finds out as it takes them, it is one statement.

Otherwise the heads of all sources are read first, the rule in `stores.order` chooses among them, and a second statement takes
from each source as many as were chosen there. Another claimer may be faster: then the next ones of that source are taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from hawser.clock import to_us
from hawser.errors import StoreError
from hawser.job import Claimed
from hawser.store import SETTLE_GRACE, Share
from hawser.stores.order import Entry, choose
from hawser.stores.postgres.directory import Directory, Kind, Lane, Source, View, sources
from hawser.stores.postgres.frontier import FULL, Frontier, Place, columns
from hawser.stores.postgres.server import Server

GRACE: Final = to_us(SETTLE_GRACE)

TRIES: Final = 20
"""How often a claim begins anew because lanes or pauses changed under it."""

PEEKED: Final = 8_000
"""Jobs that a claim looks at, over all sources, before it chooses."""

NOWHERE_ELSE: Final[Mapping[Source, Place]] = {}

FEWEST: Final = 32
"""Jobs of one source that it looks at however many sources there are."""


class Heads:
    """A source's due jobs as a claim saw them, in the shape that `choose` takes from."""

    __slots__ = ("_entries", "_next", "head", "task", "waited")

    def __init__(self, task: str, kind: Kind, entries: list[Entry]) -> None:
        self.task = task
        self.waited = kind in (Kind.TIMED, Kind.RETRYING)
        self._entries = entries
        self._next = 1
        self.head: Entry | None = entries[0]

    def pop(self) -> None:
        self.head = self._entries[self._next] if self._next < len(self._entries) else None
        self._next += 1


class Taken:
    """What one statement took, and what it learnt."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.now, self.version, self.mixed = rows[0][0], rows[0][1], rows[0][2]
        self.rows = [row for row in rows if row[3] is not None]


class Claims:
    """The claims of one process."""

    def __init__(self, server: Server, directory: Directory) -> None:
        self._server = server
        self._directory = directory
        self._frontier = Frontier()
        self._alone: Source | None = None
        self._turns = 0
        self._now = 0
        self._sweeping: asyncio.Task[None] | None = None

    async def claim(
        self, queues: Sequence[Share], limit: int, worker: str, lease_for: float, room: Mapping[str, int]
    ) -> list[Claimed]:
        turn, self._turns = self._turns, self._turns + 1
        if limit <= 0:
            return []
        for _ in range(TRIES):
            view, now = self._directory.view, self._now
            lanes = [lane for queue in dict.fromkeys(share.queue for share in queues) for lane in view.open(queue, now)]
            claim = _Claim(self._server, self._frontier, view, lanes, view.good_until(now), worker, to_us(lease_for))
            rows = await self._try(claim, queues, limit, turn, room)
            self._now = claim.now
            if claim.version != view.version:
                await self._directory.read(self._server.line("claim"))
            elif claim.is_good:
                if self._server.line("claim").is_new():
                    # Who answers now may have been set back, by a backup or a failover, to where jobs wait that we saw go.
                    self._frontier.doubt()
                    if not rows:
                        await self._swept()
                        self._sweep()
                        await self._swept()
                        continue
                self._sweep()
                return [_claimed(row, view.lanes[row[5]]) for row in rows]
        raise StoreError(f"lanes and pauses changed {TRIES} times during one claim; try again")

    async def _try(self, claim: _Claim, queues: Sequence[Share], limit: int, turn: int, room: Mapping[str, int]) -> Sequence[Any]:
        alone = self._alone
        if alone is not None and alone in claim.sources:
            lane = claim.view.lanes[alone.lane]
            most = next((share.most for share in queues if share.queue == lane.queue), None)
            places = min(limit, room.get(lane.task, limit), limit if most is None else most)
            if places > 0:
                taken = await claim.take_alone(alone, places)
                if not taken.mixed or not claim.is_good:
                    return taken.rows
        self._alone = None
        found = await claim.peek(limit)
        if not claim.is_good:
            return []
        if len(found) == 1:
            [self._alone] = found
        chosen = choose(queues, limit, turn, claim.now, lambda queue: _levels(claim, queue, found), dict(room))
        return await claim.take(chosen) if chosen else []

    def _sweep(self) -> None:
        """Look behind the frontiers, beside the claims."""
        if self._sweeping is None or self._sweeping.done():
            gaps = list(self._frontier.gaps())
            if gaps:
                self._sweeping = asyncio.get_running_loop().create_task(self._look_behind(gaps))

    async def _look_behind(self, gaps: Sequence[Any]) -> None:
        lanes, kinds = [gap.source.lane for gap in gaps], [gap.source.kind for gap in gaps]
        asked = (lanes, kinds, *columns([gap.begin for gap in gaps]), *columns([gap.end for gap in gaps]))
        # The next sweep will look again.
        with suppress(StoreError):
            line, statement = self._server.line("sweep"), self._server.sql["behind"]
            for n, run_at, seq in await line.rows(statement, self._server.given, *asked, writing=False):
                self._frontier.fall_back(gaps[n - 1].source, Place(run_at, seq))

    async def due_in(self, queues: Sequence[str]) -> float | None:
        """Seconds until a job of these queues may be claimed, 0 if one may be now, None if there is none."""
        line = self._server.line("read")
        for _ in range(TRIES):
            view = self._directory.view
            places = sources([lane for queue in queues for lane in view.open(queue, self._now)])
            begin = columns([self._frontier.of(source) for source in places])
            asked = ([source.lane for source in places], [source.kind for source in places], *begin)
            [(now, version, run_at)] = await line.rows(self._server.sql["next_due"], self._server.given, *asked, writing=False)
            if version == view.version:
                return None if run_at is None else max(0.0, (run_at - now) / 1_000_000)
            await self._directory.read(line)
        return 0.0

    async def _swept(self) -> None:
        """Wait for the sweep that is under way, if it is this loop's."""
        if self._sweeping is not None and not self._sweeping.done() and self._sweeping.get_loop() is asyncio.get_running_loop():
            await asyncio.wait((self._sweeping,))

    async def close(self) -> None:
        """End the sweep that is under way."""
        await self._swept()


class _Claim:
    """One try of a claim: what it knows, and what it learns of the store's time and number."""

    def __init__(
        self,
        server: Server,
        frontier: Frontier,
        view: View,
        lanes: Sequence[Lane],
        good_until: int,
        worker: str,
        lease_us: int,
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
        self._good_until = good_until

    @property
    def is_good(self) -> bool:
        """Whether lanes and pauses were as the claim took them to be."""
        return self.version == self.view.version and self.now < self._good_until

    async def take_alone(self, alone: Source, places: int) -> Taken:
        """Take from one source, if no other has a due job."""
        begin = self._frontier.on(alone)
        taken = await self._take({**dict.fromkeys(self.sources, 0), alone: places}, {alone: begin})
        taken.rows.sort(key=_by_due)
        self._frontier.ended(alone, Place(*_by_due(taken.rows[-1])) if len(taken.rows) == places >= FULL else None)
        if not taken.mixed and self.is_good:
            if not taken.rows and begin > self._frontier.of(alone):
                return await self.take_alone(alone, places)
            first = Place(*_by_due(taken.rows[0])) if taken.rows else Place(self.now, 0)
            for source in self.sources:
                self._frontier.saw(source, first if source == alone else Place(self.now, 0))
        return taken

    async def peek(self, limit: int) -> dict[Source, list[Entry]]:
        """The heads of all sources that have due jobs: due time, order, source."""
        asked = self._asked(self.sources)
        each = min(limit, max(FEWEST, PEEKED // max(1, len(self.sources))))
        line, statement = self._server.line("claim"), self._server.sql["peek"]
        began = time.monotonic()
        rows = await line.rows(statement, self._server.given, self.view.version, *asked, each, self._good_until, writing=False)
        self._learn(rows[0][0], rows[0][1], began)
        order = list(self.sources)
        found: dict[Source, list[Entry]] = {}
        for _, _, n, run_at, seq in rows:
            if n is not None:
                found.setdefault(order[n - 1], []).append((run_at, seq, order[n - 1]))
        if self.is_good:
            for source in self.sources:
                self._frontier.saw(source, Place(*found[source][0][:2]) if source in found else Place(self.now, 0))
        return found

    async def take(self, chosen: Sequence[Entry]) -> list[Any]:
        """Take from each source as many as were chosen there, and give them in the order of the choice."""
        places: dict[Source, int] = {}
        for _, _, source in chosen:
            places[source] = places.get(source, 0) + 1
        taken = await self._take(places)
        order = {seq: n for n, (_, seq, _) in enumerate(chosen)}
        return sorted(taken.rows, key=lambda row: (order.get(row[3], len(order)), *_by_due(row)))

    async def _take(self, places: Mapping[Source, int], begin: Mapping[Source, Place] = NOWHERE_ELSE) -> Taken:
        asked = (*self._asked(places, begin), list(places.values()), self._worker, self._lease_us, GRACE, self._good_until)
        line, statement = self._server.line("claim"), self._server.sql["take"]
        began = time.monotonic()
        taken = Taken(await line.rows(statement, self._server.given, self.view.version, *asked))
        self._learn(taken.now, taken.version, began)
        return taken

    def _asked(
        self, places: Mapping[Source, Any], begin: Mapping[Source, Place] = NOWHERE_ELSE
    ) -> tuple[list[int], list[Kind], list[int], list[int]]:
        starts = columns([begin[source] if source in begin else self._frontier.of(source) for source in places])
        return [source.lane for source in places], [source.kind for source in places], *starts

    def _learn(self, now: int, version: int, asked: float) -> None:
        self.now, self.version = now, version
        self._server.saw(now)
        self._frontier.at(now, asked)


def _levels(claim: _Claim, queue: str, found: Mapping[Source, list[Entry]]) -> list[list[Heads]]:
    """The sources of a queue that have due jobs, by priority, highest first."""
    by_priority: dict[int, list[Heads]] = {}
    for lane in claim.lanes:
        if lane.queue == queue:
            for kind in Kind:
                if entries := found.get(Source(lane.id, kind)):
                    by_priority.setdefault(lane.priority, []).append(Heads(lane.task, kind, entries))
    return list(by_priority.values())


def _by_due(row: Any) -> tuple[int, int]:
    return row[12], row[3]


def _claimed(row: Any, lane: Lane) -> Claimed:
    (
        _,
        _,
        _,
        _,
        id,
        _,
        _,
        body,
        attempt,
        max_attempts,
        timeout,
        lease,
        run_at,
        enqueued_at,
        key,
        tags,
        parent_id,
        schedule,
        tick,
        crashes,
        returned,
    ) = row
    return Claimed(
        id=id,
        task=lane.task,
        queue=lane.queue,
        body=body,
        priority=lane.priority,
        attempt=attempt,
        max_attempts=max_attempts,
        timeout=timeout,
        lease=lease,
        run_at_us=run_at,
        enqueued_at_us=enqueued_at,
        key=key,
        tags=tuple(msgspec.json.decode(tags)) if tags else (),
        parent_id=parent_id,
        schedule=schedule,
        tick_us=tick,
        crashes=crashes,
        hint=(attempt, max_attempts, returned),
    )
