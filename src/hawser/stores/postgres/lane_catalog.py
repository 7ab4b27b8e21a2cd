"""What a process knows of lanes and pauses. The database has one number that rises with every change of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from hawser.job import NewJob
from hawser.policy import QueuePolicy
from hawser.store import Target
from hawser.stores.order import AGED_US, ageing_of
from hawser.stores.order import Lane as Waiting
from hawser.stores.postgres.errors import LanesForgotten
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.server import Server

T = TypeVar("T")

NEVER: Final = 2**63 - 1

GROUPED_KIND: Final = 4
"""Added to the kind of a job that has a group, so that claims of other jobs do not meet it."""

Name = tuple[str, str, int]
"""Queue, task and priority."""

Hint = tuple[int, int, int, int]
"""What a claim knows of a job, for its settlement: attempt, attempts in all, returned, lane. A plain tuple: the garbage collector
looks at it once."""


class Kind(IntEnum):
    """How a job waits: the kinds of `stores.order`, and those that may become visible when claims are past their place."""

    FRESH = 0
    LATE = 1
    """Fresh too, but dated back by its maker, or written in a transaction that may commit long after."""
    TIMED = 2
    RETRYING = 3

    @property
    def waiting(self) -> Waiting:
        return Waiting.FRESH if self is Kind.LATE else Waiting[self.name]


class CatalogLane(NamedTuple):
    """A queue's jobs of one task and priority."""

    id: int
    queue: str
    task: str
    priority: int
    grouped: bool = False
    """Whether its jobs may have a group."""


class LaneSource(NamedTuple):
    """Where a claim reads: one lane's jobs of one kind."""

    lane: int
    kind: int
    """A `Kind`, or one with `GROUPED_KIND` added."""


class Paused(NamedTuple):
    """A pause as a claim needs it."""

    kind: str
    name: str
    until: int | None

    def holds(self, lane: CatalogLane, now: int) -> bool:
        return (self.until is None or self.until > now) and self.name == (lane.queue if self.kind == "queue" else lane.task)


class GroupLimit(NamedTuple):
    """A limit per group of a task."""

    id: int
    ordered: bool


class CatalogView(NamedTuple):
    """Lanes and pauses as of one number."""

    version: int
    lanes: dict[int, CatalogLane]
    ids: dict[Name, int]
    queues: dict[str, list[CatalogLane]]
    pauses: list[Paused]
    limits: dict[int, Target]
    """What the limits that bind claims limit, by number."""
    limited: dict[int, tuple[int, ...]]
    """The limits of each lane that has any."""
    probes: dict[str, int]
    """The tasks whose breaker is open, and when the next probe may start; 0 is never."""
    grouped: frozenset[str]
    """The queues in which jobs may have a group."""
    ageing: Mapping[str, int | None] = MappingProxyType({})
    """Microseconds after which jobs of a queue have aged, where its policy says so; None is never."""
    dependencies: bool = False
    """Whether any job ever waited for another."""
    expiries: bool = False
    """Whether any job ever had an expiry."""
    group_limits: Mapping[str, GroupLimit] = MappingProxyType({})
    """The limits per group, by task."""

    def open(self, queue: str, now: int) -> list[CatalogLane]:
        """The lanes of a queue that are not paused, highest priority first."""
        lanes = self.queues.get(queue, [])
        return [lane for lane in lanes if not any(pause.holds(lane, now) for pause in self.pauses)] if self.pauses else lanes

    def ageing_of(self, queue: str) -> int | None:
        return self.ageing.get(queue, AGED_US)

    def lacks(self, names: set[Name], grouped: set[Name]) -> set[Name]:
        """Those of these lanes that are not there, or are not known to have jobs with a group."""
        return {name for name in names if name not in self.ids or (name in grouped and not self.lanes[self.ids[name]].grouped)}

    def good_until(self, now: int) -> int:
        """When the next pause ends."""
        return min((pause.until for pause in self.pauses if pause.until is not None and pause.until > now), default=NEVER)


_NOTHING = CatalogView(0, {}, {}, {}, [], {}, {}, {}, frozenset())


class LaneCatalog:
    """The latest view, read again when it is found to be old."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.view = _NOTHING

    async def read(self, connection: ManagedConnection) -> CatalogView:
        """Read it anew."""
        [row] = await connection.rows(self._server.sql["lane_catalog"], writing=False)
        version, all_lanes, all_pauses, all_limits, all_probes, all_policies, *used = row
        lanes = msgspec.json.decode(all_lanes or "[]", type=list[CatalogLane])
        pauses = msgspec.json.decode(all_pauses or "[]", type=list[Paused])
        queues: dict[str, list[CatalogLane]] = {}
        for lane in sorted(lanes, key=lambda lane: (-lane.priority, lane.id)):
            queues.setdefault(lane.queue, []).append(lane)
        ids = {(lane.queue, lane.task, lane.priority): lane.id for lane in lanes}
        named = msgspec.json.decode(all_limits or "[]", type=list[tuple[int, Literal["queue", "task"], str, bool, bool]])
        limits = {id: Target(kind, name) for id, kind, name, per_group, _ in named if not per_group}
        of_groups = {name: GroupLimit(id, ordered) for id, _, name, per_group, ordered in named if per_group}
        limited = _limited(lanes, limits) if limits else {}
        probes = msgspec.json.decode(all_probes or "{}", type=dict[str, int])
        grouped = frozenset(lane.queue for lane in lanes if lane.grouped)
        policies = msgspec.json.decode(all_policies or "[]", type=list[tuple[str, str]])
        ageing = {queue: ageing_of(msgspec.json.decode(policy, type=QueuePolicy)) for queue, policy in policies}
        by_id = {lane.id: lane for lane in lanes}
        self.view = CatalogView(version, by_id, ids, queues, pauses, limits, limited, probes, grouped, ageing, *used)._replace(
            group_limits=of_groups
        )
        return self.view

    async def lane(self, id: int, connection: ManagedConnection) -> CatalogLane:
        """The lane of that number, which the database has."""
        return self.view.lanes[id] if id in self.view.lanes else (await self.read(connection)).lanes[id]

    async def make(self, names: Iterable[Name], connection: ManagedConnection, grouped: Iterable[Name] = ()) -> dict[Name, int]:
        """The numbers of these lanes; those that are new are made, in a transaction of their own. Those in `grouped`, of `names`,
        are said to have jobs with a group."""
        wanted, with_groups, view = set(names), set(grouped), self.view
        if view.lacks(wanted, with_groups):
            view = await self.read(connection)
        # A random number may be another lane's: then another is taken.
        while missing := sorted(view.lacks(wanted, with_groups)):
            queues, tasks, priorities = (list(column) for column in zip(*missing, strict=True))
            await connection.rows(
                self._server.sql["make_lanes"], queues, tasks, priorities, [name in with_groups for name in missing]
            )
            view = await self.read(connection)
        return view.ids

    async def make_for(self, jobs: Iterable[NewJob], connection: ManagedConnection) -> dict[Name, int]:
        """The numbers of all lanes that these jobs need. If one of them expires, that is noted, in a transaction of its own."""
        jobs = list(jobs)
        if not self.view.expiries and any(job.expires is not None for job in jobs):
            await connection.rows(self._server.sql["use_expiries"])
            await self.read(connection)
        named = [((job.queue, job.task, job.priority), job.group) for job in jobs]
        return await self.make({name for name, _ in named}, connection, {name for name, group in named if group is not None})

    async def surely(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write with the lanes that we know; once more when the database was set back to a time before them."""
        try:
            return await write()
        except LanesForgotten:
            self.forget()
            return await write()

    def forget(self) -> None:
        """The next call reads it anew."""
        self.view = _NOTHING


def sources(lanes: Sequence[CatalogLane]) -> list[LaneSource]:
    return [LaneSource(lane.id, kind) for lane in lanes for kind in Kind]


def _limited(lanes: Sequence[CatalogLane], limits: Mapping[int, Target]) -> dict[int, tuple[int, ...]]:
    """The limits of each lane that has any: its queue's and its task's."""
    ids = {target: id for id, target in limits.items()}
    found = {lane.id: (ids.get(Target("queue", lane.queue)), ids.get(Target("task", lane.task))) for lane in lanes}
    some = {lane: tuple(id for id in both if id is not None) for lane, both in found.items()}
    return {lane: of for lane, of in some.items() if of}
