"""The operator's reads. None of them holds a lock that a claim or a settlement would wait for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, assert_never

import msgspec

from hawser.clock import at, from_datetime, to_us
from hawser.ids import is_id
from hawser.job import Attempt, Job, State
from hawser.job import Waiting as WaitsFor
from hawser.policy import QueuePolicy
from hawser.store import (
    DUE_COUNTED,
    ERROR_TOLD,
    WORKER_KEPT,
    AuditRecord,
    DeadGroup,
    DeadGroups,
    DeadLetters,
    Filter,
    Limits,
    Page,
    Pause,
    QueueStats,
    WorkerSeen,
)
from hawser.stores.order import Lane as Waiting
from hawser.stores.postgres.lane_catalog import CatalogLane, CatalogView, Kind, LaneCatalog, LaneSource
from hawser.stores.postgres.managed_connection import LOOK, Work
from hawser.stores.postgres.server import Server
from hawser.stores.record import BLANK, Record, audit_of, job_of, letter_of, pause_of, shown, worker_of
from hawser.stores.tally import attempts_p99, minutes_of, rates

SCAN: Final = 20_000
"""Jobs that one `find` looks at, up to `SCANS` times while it finds none, before it answers with what it has."""

SCANS: Final = 5

FEW: Final = 10_000
"""Jobs of one table in the lanes of a filter up to which all of them are looked up and sorted."""

_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_ALL: Final = ("all_live", "all_done", "all_failed")
_PLACES: Final = {
    "all_live": ("@fresh", "@timed", "@retrying", "@running"),
    "all_done": ("@done",),
    "all_failed": ("@dead", "@cancelled"),
}
"""How the jobs of a table are counted."""

_IN_LANES: Final = {"all_live": "live_in_lanes", "all_failed": "failed_in_lanes"}
"""The tables that have an index of lanes."""
_attempts = msgspec.json.Decoder(list[Record])


class Queries:
    """Reads for pages and commands."""

    def __init__(self, server: Server, directory: LaneCatalog) -> None:
        self._server = server
        self._directory = directory

    async def _rows(self, name: str, *arguments: Any) -> Sequence[Any]:
        return await self._server.line("read").rows(self._server.sql[name], *arguments, writing=False)

    async def get(self, id: str) -> Job | None:
        if not is_id(id):
            return None
        sql = self._server.sql
        union = " union all ".join(f"({sql[table]} where j.id = $1)" for table in _ALL)
        jobs = await self._jobs(await self._server.line("read").rows(union, id, writing=False))
        return jobs[0] if jobs else None

    async def find(self, filter: Filter, after: str | None, limit: int) -> Page:
        if not all(given is None or is_id(given) for given in (after, filter.parent_id)):
            return Page([])
        if filter.waiting and filter.state not in (None, State.READY):
            return Page([])
        if filter.group is not None and (filter.waiting or filter.state not in (None, State.DEAD)):
            return Page([])
        line = self._server.line("read")
        view = await self._directory.read(line) if filter.queue or filter.task or filter.group else self._directory.view
        search = Search(self._server.sql, filter, view, self._server.given)
        last, searched = after or _LAST, 0
        for _ in range(SCANS):
            rows, seen, behind = await line.together(search.look(last, limit), begin=LOOK, writing=False)
            if len(rows) > limit:
                return Page(await self._jobs(rows[:limit]), str(rows[limit - 1]["id"]), searched + limit)
            searched += seen
            if seen < SCAN:
                return Page(await self._jobs(rows), None, searched)
            last = str(behind)
            if rows:
                break
        return Page(await self._jobs(rows), last, searched)

    async def _jobs(self, rows: Sequence[Any]) -> list[Job]:
        kept: dict[str, list[Attempt]] = {str(row["id"]): [] for row in rows}
        if tried := [str(row["id"]) for row in rows if row["lease"] and row["attempts"] is None]:
            for id, *record in await self._rows("attempts", tried):
                kept[id].append(shown(tuple(record)))
        line = self._server.line("read")
        return [_job(row, await self._directory.lane(row["lane"], line), kept[str(row["id"])]) for row in rows]

    async def dead_letters(self, queue: str | None, task: str | None, after: str | None, limit: int) -> DeadLetters:
        if after is not None and not is_id(after):
            return DeadLetters([], 0)
        line = self._server.line("read")
        lanes = _lanes(await self._directory.read(line), queue, task) if queue or task else None
        rows = await self._rows("dead_letters", after or _LAST, lanes, BLANK, ERROR_TOLD, limit + 1)
        letters = []
        for id, number, error, finished_at in rows[:limit]:
            lane = await self._directory.lane(number, line)
            if queue in (None, lane.queue) and task in (None, lane.task):
                letters.append(letter_of(id, lane.task, lane.queue, error, finished_at))
        return DeadLetters(letters, len(rows[:limit]), rows[limit - 1][0] if len(rows) > limit else None)

    async def dead_groups(self, queue: str | None, task: str | None, limit: int) -> DeadGroups:
        rows = await self._rows("dead_groups", queue, task, limit + 1, BLANK, ERROR_TOLD)
        groups = []
        for name, fingerprint, count, first_at, id, number, error, finished_at in rows[:limit]:
            lane = await self._directory.lane(number, self._server.line("read"))
            letter = letter_of(id, lane.task, lane.queue, error, finished_at)
            groups.append(DeadGroup(name, fingerprint, count, at(first_at), letter))
        return DeadGroups(groups, await self.ungrouped(DUE_COUNTED), len(rows) > limit)

    async def ungrouped(self, most: int) -> int:
        """How many dead jobs have no fingerprint yet, counted up to a limit."""
        [(count,)] = await self._rows("count_ungrouped", most)
        return int(count)

    async def stats(self, queue: str | None) -> QueueStats:
        figures = await self._figures(queue)
        return _stats(figures, figures.queues() if queue is None else (queue,))

    async def queues(self) -> dict[str, QueueStats]:
        figures = await self._figures(None)
        names = {*figures.holding(), *figures.paused, *await self.limits(), *await self.policies()}
        return {queue: _stats(figures, (queue,)) for queue in sorted(names)}

    async def depths(self, queue: str | None = None) -> DepthRows:
        """How many jobs stand where."""
        [(now, version, counted)] = await self._rows("depths", self._server.given, queue)
        if self._directory.view.version != version:
            await self._directory.read(self._server.line("read"))
        view = self._directory.view
        counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for lane, name, count in msgspec.json.decode(counted or "[]", type=list[tuple[int, str, int]]):
            if lane in view.lanes:
                counts[lane][name] = count
        return DepthRows(now, view, counts)

    async def heads(self, depths: DepthRows, counted: int) -> dict[int, list[Head]]:
        """By lane: what stands first of each kind, and how many are due, where they are no more than are counted."""
        places = depths.sources()
        heads: defaultdict[int, list[Head]] = defaultdict(list)
        asked = [source.lane for source in places], [source.kind for source in places]
        for n, run_at, past, later in await self._rows("heads", depths.now, *asked, counted) if places else ():
            lane, waiting = places[n - 1].lane, places[n - 1].kind.waiting
            if waiting is Waiting.FRESH:
                heads[lane].append(Head(waiting, run_at, 0, exact=True))
            elif past < counted or later == counted:
                heads[lane].append(Head(waiting, run_at, past, exact=past < counted))
            else:
                # Fewer wait for their time than are past it: those were counted.
                heads[lane].append(Head(waiting, run_at, depths.waiting(lane, waiting) - later, exact=True))
        return heads

    async def _figures(self, queue: str | None) -> Figures:
        """Asked once for all queues, and not queue by queue."""
        depths = await self.depths(queue)
        heads = await self.heads(depths, DUE_COUNTED)
        sums: defaultdict[str, dict[str, int]] = defaultdict(dict)
        minutes = minutes_of(depths.now)
        tallies = self._rows("tallies", *minutes) if queue is None else self._rows("queue_tallies", *minutes, queue)
        for name, event, count in await tallies:
            sums[name][event] = count
        return Figures(depths, heads, sums, dict(await self._rows("keys_over", depths.now)), depths.paused())

    async def pauses(self) -> list[Pause]:
        return [pause_of(*row) for row in await self._rows("pauses", self._server.given)]

    async def limits(self) -> dict[str, Limits]:
        return {queue: Limits(max_depth=depth) for queue, depth in await self._rows("limits")}

    async def policies(self) -> dict[str, QueuePolicy]:
        return {queue: msgspec.json.decode(policy, type=QueuePolicy) for queue, policy in await self._rows("policies")}

    async def workers(self) -> list[WorkerSeen]:
        rows = await self._rows("workers", self._server.given, to_us(WORKER_KEPT))
        return [worker_of(*row) for row in rows]

    async def audit(self, limit: int, before: int | None, action: str | None, by: str | None) -> list[AuditRecord]:
        return [audit_of(*row) for row in await self._rows("audit", limit, before, action, by)]


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
        return [LaneSource(lane, kind) for lane in self.counts for kind in Kind if self.waiting(lane, kind.waiting)]


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
    keys_over: Mapping[str, int]
    paused: set[str]

    def holding(self) -> set[str]:
        """The queues that hold jobs."""
        lanes = self.depths.view.lanes
        return {lanes[lane].queue for lane, counts in self.depths.counts.items() if counts.keys() - {"@keys"}}

    def queues(self) -> set[str]:
        """All that there is anything to say of."""
        return {*self.depths.view.queues, *self.sums, *self.keys_over, *self.paused}


def _stats(figures: Figures, queues: Collection[str]) -> QueueStats:
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
        scheduled=places["@timed"] - due[Waiting.TIMED],
        retrying=places["@retrying"],
        due=places["@fresh"] + due[Waiting.TIMED] + due[Waiting.RETRYING],
        running=places["@running"],
        done=places["@done"],
        dead=places["@dead"],
        cancelled=places["@cancelled"],
        keys=places["@keys"] - sum(figures.keys_over.get(queue, 0) for queue in queues),
        oldest_age_s=(now - min((now, *(head.run_at for head in heads)))) / 1_000_000,
        attempts_p99=attempts_p99(sums),
        rates=rates(sums, now),
        paused=not figures.paused.isdisjoint(queues),
        exact=all(head.exact for head in heads),
    )


def _table(state: State) -> str:
    """The statement that reads the jobs of a state."""
    match state:
        case State.READY | State.RUNNING:
            return "all_live"
        case State.DONE:
            return "all_done"
        case State.DEAD | State.CANCELLED:
            return "all_failed"
        case _:
            assert_never(state)


class Search:
    """The statements of one `find`, from behind a cursor: jobs that match, and how far that looked."""

    def __init__(self, sql: Mapping[str, str], filter: Filter, view: CatalogView, given: int | None) -> None:
        self._sql = sql
        self._filter = filter
        self._given = given
        self._lanes = None if filter.queue is None and filter.task is None else _lanes(view, filter.queue, filter.task)
        if filter.group is not None:
            of_task = _lanes(view, None, filter.group.task)
            self._lanes = of_task if self._lanes is None else [lane for lane in self._lanes if lane in of_task]
        state = State.READY if filter.waiting else State.DEAD if filter.group else filter.state
        self._tables = (_table(state),) if state else _ALL
        self._begin: list[Any] = []
        self._match: list[Any] = []

    def look(self, last: str, limit: int) -> Work[tuple[Sequence[Any], int, Any]]:
        """One more than so many jobs, if there are; else also how many were looked at, and the last of those. Of one instant:
        what came or went between the two would be left out, or given twice."""

        async def work(con: Any) -> tuple[Sequence[Any], int, Any]:
            counts = None if self._lanes is None else dict(await con.fetch(self._sql["lane_counts"], self._lanes))
            union = self._union(counts)
            if not union:
                return [], 0, None
            found, seen = self._statements(union)
            rows = await con.fetch(f"{found} {limit + 1:d}", last, *self._begin, *self._match)
            if len(rows) > limit:
                return rows, 0, None
            [(looked_at, behind)] = await con.fetch(seen, last, *self._begin)
            return rows, looked_at, behind

        return work

    def _statements(self, union: str) -> tuple[str, str]:
        self._match = []
        wanted = " and ".join([*self._waiting(self._sql, self._filter, self._given), *self._matching(self._filter)]) or "true"
        # All words here are our own; what the filter says goes as arguments.
        # Only the newest of all tables together: behind them another table may have jobs that this look does not reach.
        newest = f"select * from ({union}) as v order by v.id desc limit {SCAN}"  # noqa: S608
        found = f"select * from ({newest}) as u where {wanted} order by u.id desc limit "  # noqa: S608
        ids = f"select u.id from ({union}) as u order by u.id desc limit {SCAN}"  # noqa: S608
        seen = f"select count(*), (array_agg(u.id order by u.id))[1] from ({ids}) as u"  # noqa: S608
        return found, seen

    def _union(self, counts: Mapping[str, int] | None) -> str:
        """The tables that hold jobs of the filter's lanes, as they were just counted."""
        filter = self._filter
        self._begin, where = [], ["j.id < $1"]
        for column, value in (("key", filter.key), ("parent_id", filter.parent_id), ("schedule", filter.schedule)):
            if value is not None:
                self._begin.append(value)
                where.append(f"j.{column} = ${1 + len(self._begin)}")
        if filter.group is not None:
            self._begin.append(filter.group.fingerprint)
            where.append(f"j.state = 'dead' and j.fingerprint = ${1 + len(self._begin)}")
        if filter.state is State.RUNNING:
            where.append(self._sql["in_flight"])
        elif filter.state in (State.DEAD, State.CANCELLED):
            where.append(f"j.state = '{filter.state}'")
        parts, by_lane = [], not self._begin
        for name in self._tables:
            places = (f"@{filter.state}",) if name == "all_failed" and filter.state else _PLACES[name]
            held = None if counts is None else sum(counts.get(place, 0) for place in places)
            if held == 0:
                continue
            words = where
            if by_lane and held is not None and held <= FEW and name in _IN_LANES:
                # Few enough to be sorted: the index of lanes gives no order.
                self._begin = [self._lanes]
                words = [*where, self._sql[_IN_LANES[name]].format("$2")]
            parts.append(f"({self._sql[name]} where {' and '.join(words)} order by j.id desc limit {SCAN})")
        return " union all ".join(parts)

    def _waiting(self, sql: Mapping[str, str], filter: Filter, given: int | None) -> Iterator[str]:
        if filter.waiting is WaitsFor.RETRYING:
            yield "u.state = 'ready' and u.attempt > 0"
        elif filter.waiting is WaitsFor.SCHEDULED:
            yield self._asked(sql["scheduled"], given)

    def _matching(self, filter: Filter) -> Iterator[str]:
        if filter.state is not None:
            yield self._asked("u.state = {}", filter.state.value)
        if self._lanes is not None:
            yield self._asked("u.lane = any({}::integer[])", self._lanes)
        if filter.since is not None:
            yield self._asked("u.enqueued_at >= {}", from_datetime(filter.since))
        if filter.until is not None:
            yield self._asked("u.enqueued_at < {}", from_datetime(filter.until))
        if filter.tag is not None:
            yield self._asked("u.tags::jsonb ? {}", filter.tag)

    def _asked(self, words: str, value: Any) -> str:
        self._match.append(value)
        return words.format(f"${1 + len(self._begin) + len(self._match)}")


def _lanes(view: CatalogView, queue: str | None, task: str | None) -> list[int]:
    return [lane.id for lane in view.lanes.values() if queue in (None, lane.queue) and task in (None, lane.task)]


def _job(row: Any, lane: CatalogLane, kept: Sequence[Attempt]) -> Job:
    """A job whose lane stands in another table, and whose attempts may have moved into its own row when it ended."""
    names = {"task": lane.task, "queue": lane.queue, "priority": lane.priority}
    parent_id = None if row["parent_id"] is None else str(row["parent_id"])
    attempts = kept if row["attempts"] is None else [shown(record) for record in _attempts.decode(row["attempts"])]
    return job_of({**row, **names, "id": str(row["id"]), "parent_id": parent_id}, attempts)
