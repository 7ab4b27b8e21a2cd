"""Claim. When one source alone has due jobs, or alone of the highest priority, which a claim finds out as it takes them, it
is one statement.

Otherwise the heads of all sources are read first, the rule in `stores.order` chooses among them, and a second statement takes
from each source as many as were chosen there. Another claimer may be faster: then the next ones of that source are taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from hawser.clock import to_us
from hawser.errors import StoreError
from hawser.job import Claimed
from hawser.store import Leave, Share
from hawser.stores.breakers import with_breakers
from hawser.stores.columns import read_tags
from hawser.stores.limits import Rooms, bounded, is_shut
from hawser.stores.order import Entry, choose, reserved
from hawser.stores.postgres.expiry import ExpiryStatements
from hawser.stores.postgres.frontier import Frontier, FrontierPlace, columns
from hawser.stores.postgres.lane_catalog import CatalogLane, CatalogView, Kind, LaneCatalog, LaneSource, sources
from hawser.stores.postgres.limits import LimitRooms
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.server import Server
from hawser.stores.postgres.set_back import SetBack
from hawser.stores.postgres.taking import FEWEST, ClaimTry
from hawser.stores.postgres.turns import Heads, TurnChoice, TurnClaims, levels_by_priority

CLAIM_TRIES: Final = 20
"""How often a claim begins anew because lanes or pauses changed under it."""

LOOK_DOWN_EVERY: Final = 0.1
"""Seconds after which a claim looks at all sources again, where others take from the highest priority only: it moves the
frontiers of the lower ones."""


class ClaimStatements:
    """The claims of one process."""

    def __init__(self, server: Server, catalog: LaneCatalog, set_back: SetBack, expiry: ExpiryStatements) -> None:
        self._server = server
        self._expiry = expiry
        self._catalog = catalog
        self._set_back = set_back
        self._frontier = Frontier()
        self._by_turns = TurnClaims()
        self._alone: LaneSource | None = None
        """The source that alone had due jobs at the last look."""
        self._leading: LaneSource | None = None
        """The one that alone of the highest priority had, where lower ones have, too."""
        self._only_groups = False
        """Whether the last look found no job without a group."""
        self._looked = 0.0
        self._turns = 0
        self._now = 0
        self._heard = time.monotonic()
        self._left: frozenset[str] = frozenset()
        """Jobs that the last claim left to others. The frontier passes them, and sweeps do not look for them."""
        self._sweeping: asyncio.Task[None] | None = None
        self.limits = LimitRooms(server)

    async def claim(
        self, queues: Sequence[Share], limit: int, worker: str, lease_for: float, room: Mapping[str, int], leave: Leave
    ) -> list[Claimed]:
        turn, self._turns = self._turns, self._turns + 1
        if limit <= 0:
            return []
        self._find_again(leave.jobs)
        await self._expiry.before_claim(self._about_now())
        for _ in range(CLAIM_TRIES):
            if self._set_back.wanted:
                await self._set_back.mend(self._server.connection("claim"))
            view, now = self._catalog.view, self._now
            lanes = _lanes(view, dict.fromkeys(share.queue for share in queues), now, leave)
            rooms = await self._rooms(view, lanes, self._server.connection("claim"))
            lanes = [lane for lane in lanes if not _shut(lane, rooms)] if rooms else lanes
            claim = ClaimTry(self._server, self._frontier, view, lanes, worker, to_us(lease_for), list(leave.jobs))
            claim.limits, claim.good_until = self.limits, view.good_until(now)
            rows = await self._try(claim, *bounded(queues, room, rooms), limit, turn)
            self._now, self._heard = claim.now, time.monotonic()
            if claim.version != view.version and not rows:
                await self._catalog.read(self._server.connection("claim"))
            elif claim.is_good or rows:
                if not rows and (self._set_back.noticed or claim.missed_meter):
                    continue
                if self._server.connection("claim").is_new():
                    # The server that answers now may have been set back, by a backup or a failover: jobs wait there that we saw
                    # leave.
                    self._frontier.doubt()
                    self._by_turns.forget()
                    if not rows:
                        await self._swept()
                        self._sweep()
                        await self._swept()
                        continue
                self._sweep()
                return [_claimed(row, view.lanes[row["lane"]]) for row in rows]
        raise StoreError(f"lanes and pauses changed {CLAIM_TRIES} times during one claim; try again")

    async def _rooms(self, view: CatalogView, lanes: Sequence[CatalogLane], connection: ManagedConnection) -> Rooms:
        """What limits and open breakers leave of these lanes."""
        rooms: Rooms = await self.limits.read(view, lanes, connection) if view.limits else {}
        if not view.probes:
            return rooms
        rooms = with_breakers(rooms, view.probes, self._about_now())
        self.limits.opens_at = min((room.opens_at for room in rooms.values() if room.opens_at is not None), default=None)
        return rooms

    def _about_now(self) -> int:
        """The store's time, by what the last claim said of it."""
        given = self._server.given
        return self._now + to_us(time.monotonic() - self._heard) if given is None else given

    async def _try(self, claim: ClaimTry, queues: Sequence[Share], room: dict[str, int], limit: int, turn: int) -> Sequence[Any]:
        if any(share.queue in claim.view.grouped for share in queues):
            return await self._take_turns(claim, queues, room, limit, turn)
        alone = self._alone
        if alone is not None and alone in claim.sources and not claim.is_bound(alone):
            lane = claim.view.lanes[alone.lane]
            most = next((share.most for share in queues if share.queue == lane.queue), None)
            places = min(limit, room.get(lane.task, limit), limit if most is None else most)
            if places > 0:
                taken = await claim.take_alone(alone, places)
                if not taken.mixed or not claim.is_good:
                    return taken.rows
        self._alone = None
        if (leading := self._leading_of(claim, queues, room, limit)) is not None:
            ageing = claim.view.ageing_of(claim.view.lanes[leading.lane].queue)
            taken = await claim.take_leading(leading, limit, 0 if ageing is None else reserved(limit, turn))
            if not claim.is_good or len(taken.rows) == limit:
                return taken.rows
            self._leading = None
            if taken.rows:
                return [*taken.rows, *await self._take_rest(claim, queues, room, limit - len(taken.rows), turn)]
        found = await claim.look(queues, limit, room)
        if not claim.is_good:
            return []
        self._looked, self._leading = time.monotonic(), _leading(claim, found, limit)
        if len(found) == 1:
            [self._alone] = found
        chosen = choose(queues, limit, turn, claim.now, lambda queue: _levels(claim, queue, found), room, claim.view.ageing_of)
        return await claim.take(chosen) if chosen else []

    def _leading_of(self, claim: ClaimTry, queues: Sequence[Share], room: Mapping[str, int], limit: int) -> LaneSource | None:
        """The source that leads, if this claim may have all of its places there, but for those of what has aged."""
        leading = self._leading
        if leading is None or leading not in claim.sources or time.monotonic() - self._looked > LOOK_DOWN_EVERY:
            return None
        queue = claim.view.lanes[leading.lane].queue
        if any(share.queue == queue and not _has_all(share, limit) for share in queues):
            return None
        lanes = [lane for lane in claim.lanes if lane.queue == queue]
        free = not any(lane.task in room or claim.is_bound(LaneSource(lane.id, Kind.FRESH)) for lane in lanes)
        return leading if free else None

    async def _take_rest(
        self, claim: ClaimTry, queues: Sequence[Share], room: dict[str, int], limit: int, turn: int
    ) -> Sequence[Any]:
        """Fill the places that the highest priority has left. What was taken must reach the caller whatever happens."""
        try:
            found = await claim.look(queues, limit, room)
        except StoreError:
            return []
        levels = {share.queue: _levels(claim, share.queue, found) for share in queues} if claim.is_good else {}
        chosen = choose(queues, limit, turn, claim.now, lambda queue: levels.get(queue, ()), room, lambda _: None)
        return await claim.take(chosen, keeping=True) if chosen else []

    async def _take_turns(
        self, claim: ClaimTry, queues: Sequence[Share], room: dict[str, int], limit: int, turn: int
    ) -> Sequence[Any]:
        """A claim where some jobs have groups."""
        self._alone = self._leading = None
        if self._only_groups:
            taken = await self._by_turns.take_alone(claim, queues, room, limit)
            if taken is not None:
                return taken
        found = await claim.look(queues, limit, room)
        if not claim.is_good:
            return []
        self._only_groups = not found
        choice = TurnChoice(self._by_turns, claim, turn, room)
        await choice.offer_all(queues, limit, {share.queue: levels_by_priority(claim, share.queue, found) for share in queues})
        plain = await claim.take(choice.chosen, keeping=bool(choice.rows)) if choice.chosen and claim.is_good else []
        return sorted((*choice.rows, *plain), key=lambda row: choice.order.get(row["seq"], len(choice.order)))

    def _find_again(self, left: frozenset[str]) -> None:
        """Make claims find jobs that they may take again: the frontier may have passed them while they were left."""
        given_up, self._left = self._left - left, left
        if given_up:
            self._frontier.forget()

    def _sweep(self) -> None:
        """Look behind the frontiers, beside the claims."""
        if self._sweeping is None or self._sweeping.done():
            gaps = list(self._frontier.gaps())
            if gaps:
                self._sweeping = asyncio.get_running_loop().create_task(self._look_behind(gaps))

    async def _look_behind(self, gaps: Sequence[Any]) -> None:
        lanes, kinds = [gap.source.lane for gap in gaps], [gap.source.kind for gap in gaps]
        asked = (lanes, kinds, *columns([gap.begin for gap in gaps]), *columns([gap.end for gap in gaps]), list(self._left))
        connection, statement = self._server.connection("read"), self._server.sql["behind"]
        try:
            for n, run_at, seq in await connection.rows(statement, self._server.given, *asked, writing=False):
                self._frontier.fall_back(gaps[n - 1].source, FrontierPlace(run_at, seq))
        except StoreError:
            # These gaps count as looked at: the next sweep must look at all of them again.
            self._frontier.doubt()

    def opens_in(self) -> float:
        """Seconds until a rate lets a job start that the last claim kept back; infinity when it kept none back."""
        opens_at = self.limits.opens_at
        return inf if opens_at is None else max(0.0, (opens_at - self._now) / 1_000_000)

    async def due_in(self, queues: Sequence[str], leave: Leave) -> float | None:
        """Seconds until a job of these queues may be claimed, 0 if one may be now, None if no job waits."""
        connection = self._server.connection("read")
        for _ in range(CLAIM_TRIES):
            view = self._catalog.view
            lanes = _lanes(view, queues, self._now, leave)
            rooms = await self._rooms(view, lanes, connection)
            lanes = [lane for lane in lanes if not _shut(lane, rooms)] if rooms else lanes
            places = sources(lanes)
            begin = columns([self._frontier.of(source) for source in places])
            asked = ([source.lane for source in places], [source.kind for source in places], *begin, list(leave.jobs))
            [(now, version, run_at)] = await connection.rows(
                self._server.sql["next_due"], self._server.given, *asked, writing=False
            )
            if version == view.version:
                grouped = [lane for lane in lanes if lane.grouped]
                turn_at = await self._next_turn(connection, view, grouped, leave) if grouped else None
                times = [time for time in (run_at, turn_at, self.limits.opens_at) if time is not None]
                return max(0.0, (min(times) - now) / 1_000_000) if times else None
            await self._catalog.read(connection)
        return 0.0

    async def _next_turn(
        self, connection: ManagedConnection, view: CatalogView, lanes: Sequence[CatalogLane], leave: Leave
    ) -> int | None:
        """When a group of these lanes may be served."""
        limits = {lane.id: limit for lane in lanes if (limit := view.group_limits.get(lane.task)) is not None}
        ordered = [id for id, limit in limits.items() if limit.ordered]
        own = sorted({limit.id for limit in limits.values()})
        from_turns = self._by_turns.first(lane.id for lane in lanes)
        asked = (self._server.given, [lane.id for lane in lanes], list(leave.jobs), ordered, own, from_turns)
        [(_, _, turn_at)] = await connection.rows(self._server.sql["next_turn"], *asked, writing=False)
        return int(turn_at) if turn_at is not None else None

    async def _swept(self) -> None:
        """Wait for the sweep that is under way, if it is this loop's."""
        if self._sweeping is not None and not self._sweeping.done() and self._sweeping.get_loop() is asyncio.get_running_loop():
            await asyncio.wait((self._sweeping,))

    async def close(self) -> None:
        """End the sweep that is under way."""
        await self._swept()


def _lanes(view: CatalogView, queues: Iterable[str], now: int, leave: Leave) -> list[CatalogLane]:
    """The lanes that a claimer may take from, paused ones left out."""
    return [lane for queue in queues for lane in view.open(queue, now) if lane.task not in leave.tasks]


def _shut(lane: CatalogLane, rooms: Rooms) -> bool:
    """Whether a limit leaves nothing of a lane."""
    return is_shut(rooms, "queue", lane.queue) or is_shut(rooms, "task", lane.task)


def _has_all(share: Share, limit: int) -> bool:
    """Whether a queue may have all places of a claim, at its first offer."""
    return share.most is None and (share.places is None or share.places >= limit)


def _leading(claim: ClaimTry, found: Mapping[LaneSource, list[Entry]], limit: int) -> LaneSource | None:
    """The source that alone of the highest priority has due jobs, enough to fill claims, if only lower ones of its queue do."""
    lanes = {source: claim.view.lanes[source.lane] for source in found}
    top = max((lane.priority for lane in lanes.values()), default=0)
    first = [source for source, lane in lanes.items() if lane.priority == top]
    alone = len(first) == 1 < len(found) and len({lane.queue for lane in lanes.values()}) == 1
    return first[0] if alone and len(found[first[0]]) >= min(limit, FEWEST) else None


def _levels(claim: ClaimTry, queue: str, found: Mapping[LaneSource, list[Entry]]) -> list[list[Heads]]:
    """The sources of a queue that have due jobs, by priority, highest first."""
    by_priority: dict[int, list[Heads]] = {}
    for lane in claim.by_queue.get(queue, ()):
        for kind in Kind:
            if entries := found.get(LaneSource(lane.id, kind)):
                by_priority.setdefault(lane.priority, []).append(Heads(lane.task, kind, entries))
    return list(by_priority.values())


def _claimed(row: Any, lane: CatalogLane) -> Claimed:
    """The answer of `take`, in its order; the last ones are `[[claimed]]`. Unpacked: by name each costs a look-up."""
    (
        _,
        _,
        _,
        _,
        id,
        _,
        attempt,
        max_attempts,
        lease,
        run_at,
        enqueued_at,
        crashes,
        returned,
        body,
        timeout,
        key,
        parent_id,
        schedule,
        batch,
        tags,
        tick,
        group,
    ) = row
    _, queue, task, priority, *_ = lane
    return Claimed(
        id,
        task,
        queue,
        body,
        priority,
        attempt,
        max_attempts,
        timeout,
        lease,
        run_at,
        enqueued_at,
        key=key,
        tags=read_tags(tags) if tags else (),
        parent_id=parent_id,
        schedule=schedule,
        tick_us=tick,
        group=group,
        batch=batch,
        crashes=crashes,
        hint=(attempt, max_attempts, returned, lane.id),
    )
