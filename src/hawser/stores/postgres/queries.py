"""The operator's reads. None of them holds a lock that a claim or a settlement would wait for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hawser.clock import from_datetime, to_us
from hawser.ids import is_id
from hawser.job import Attempt, Job, State
from hawser.job import Waiting as WaitsFor
from hawser.policy import QueuePolicy
from hawser.store import (
    DUE_COUNTED,
    ERROR_TOLD,
    WORKER_KEPT,
    AuditRecord,
    DeadLetters,
    Filter,
    Limits,
    Page,
    Pause,
    QueueStats,
    WorkerSeen,
)
from hawser.stores.order import Lane as Waiting
from hawser.stores.postgres.directory import Directory, Kind, Lane, Source, View
from hawser.stores.postgres.line import LOOK, Work
from hawser.stores.postgres.server import Server
from hawser.stores.record import BLANK, Record, audit_of, job_of, letter_of, pause_of, shown, worker_of
from hawser.stores.tally import attempts_p99, minutes_of, rates

SCAN: Final = 20_000
"""Jobs that one `find` looks at, up to `SCANS` times while it finds none, before it answers with what it has."""

SCANS: Final = 5

_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_TABLES: Final = {
    State.READY: ("all_live",),
    State.RUNNING: ("all_live",),
    State.DONE: ("all_done",),
    State.DEAD: ("all_failed",),
    State.CANCELLED: ("all_failed",),
}
_ALL: Final = ("all_live", "all_done", "all_failed")
_attempts = msgspec.json.Decoder(list[Record])


class Queries:
    """Reads for pages and commands."""

    def __init__(self, server: Server, directory: Directory) -> None:
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
        line = self._server.line("read")
        view = await self._directory.read(line) if filter.queue or filter.task else self._directory.view
        search = Search(self._server.sql, filter, view, self._server.given)
        last = after or _LAST
        for _ in range(SCANS):
            rows, seen, behind = await line.together(search.look(last, limit), begin=LOOK, writing=False)
            if len(rows) > limit:
                return Page(await self._jobs(rows[:limit]), str(rows[limit - 1]["id"]))
            if seen < SCAN:
                return Page(await self._jobs(rows))
            last = str(behind)
            if rows:
                break
        return Page(await self._jobs(rows), last)

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

    async def stats(self, queue: str | None) -> QueueStats:
        figures = await self._figures(queue)
        return _stats(figures, figures.queues() if queue is None else (queue,))

    async def queues(self) -> dict[str, QueueStats]:
        figures = await self._figures(None)
        names = {*figures.holding(), *figures.paused, *await self.limits(), *await self.policies()}
        return {queue: _stats(figures, (queue,)) for queue in sorted(names)}

    async def depths(self, queue: str | None = None) -> Depths:
        """How many jobs stand where."""
        [(now, version, counted)] = await self._rows("depths", self._server.given, queue)
        if self._directory.view.version != version:
            await self._directory.read(self._server.line("read"))
        view = self._directory.view
        counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for lane, name, count in msgspec.json.decode(counted or "[]", type=list[tuple[int, str, int]]):
            if lane in view.lanes:
                counts[lane][name] = count
        return Depths(now, view, counts)

    async def heads(self, depths: Depths, counted: int) -> dict[int, list[Head]]:
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

    async def audit(self, limit: int, before: int | None) -> list[AuditRecord]:
        return [audit_of(*row) for row in await self._rows("audit", limit, before)]


class Depths(NamedTuple):
    """How many jobs stand where, by lane and name of the place."""

    now: int
    view: View
    counts: Mapping[int, Mapping[str, int]]

    def waiting(self, lane: int, *kinds: Waiting) -> int:
        return sum(self.counts.get(lane, {}).get(f"@{kind.name.lower()}", 0) for kind in kinds)

    def paused(self) -> set[str]:
        """The queues whose pause is in force."""
        pauses = self.view.pauses
        return {pause.name for pause in pauses if pause.kind == "queue" and (pause.until is None or pause.until > self.now)}

    def sources(self) -> list[Source]:
        """Where jobs wait."""
        return [Source(lane, kind) for lane in self.counts for kind in Kind if self.waiting(lane, kind.waiting)]


class Head(NamedTuple):
    """The first job of one lane and kind of waiting, and how many of its like are due."""

    waiting: Waiting
    run_at: int
    due: int
    exact: bool


class Figures(NamedTuple):
    """What the figures of queues are made of."""

    depths: Depths
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


class Search:
    """The statements of one `find`, from behind a cursor: jobs that match, and how far that looked."""

    def __init__(self, sql: Mapping[str, str], filter: Filter, view: View, given: int | None) -> None:
        self.begin: list[Any] = []
        self.match: list[Any] = []
        state = State.READY if filter.waiting else filter.state
        union = " union all ".join(self._table(sql, name, filter) for name in (_TABLES[state] if state else _ALL))
        wanted = " and ".join([*self._waiting(sql, filter, given), *self._matching(filter, view)]) or "true"
        # All words here are our own; what the filter says goes as arguments.
        # Only the newest of all tables together: behind them another table may have jobs that this look does not reach.
        newest = f"select * from ({union}) as v order by v.id desc limit {SCAN}"  # noqa: S608
        self.found = f"select * from ({newest}) as u where {wanted} order by u.id desc limit "  # noqa: S608
        ids = f"select u.id from ({union}) as u order by u.id desc limit {SCAN}"  # noqa: S608
        self.seen = f"select count(*), (array_agg(u.id order by u.id))[1] from ({ids}) as u"  # noqa: S608

    def look(self, last: str, limit: int) -> Work[tuple[Sequence[Any], int, Any]]:
        """One more than so many jobs, if there are; else also how many were looked at, and the last of those. Of one instant:
        what came or went between the two would be left out, or given twice."""

        async def work(con: Any) -> tuple[Sequence[Any], int, Any]:
            rows = await con.fetch(f"{self.found} {limit + 1:d}", last, *self.begin, *self.match)
            if len(rows) > limit:
                return rows, 0, None
            [(seen, behind)] = await con.fetch(self.seen, last, *self.begin)
            return rows, seen, behind

        return work

    def _table(self, sql: Mapping[str, str], name: str, filter: Filter) -> str:
        """One table, read by the index that leaves the fewest jobs to look at."""
        where = ["j.id < $1"]
        self.begin.clear()
        for column, value in (("key", filter.key), ("parent_id", filter.parent_id), ("schedule", filter.schedule)):
            if value is not None:
                self.begin.append(value)
                where.append(f"j.{column} = ${1 + len(self.begin)}")
        if filter.state is State.RUNNING:
            where.append(sql["in_flight"])
        elif filter.state in (State.DEAD, State.CANCELLED):
            where.append(f"j.state = '{filter.state}'")
        return f"({sql[name]} where {' and '.join(where)} order by j.id desc limit {SCAN})"

    def _waiting(self, sql: Mapping[str, str], filter: Filter, given: int | None) -> Iterator[str]:
        if filter.waiting is WaitsFor.RETRYING:
            yield "u.state = 'ready' and u.attempt > 0"
        elif filter.waiting is WaitsFor.SCHEDULED:
            yield self._asked(sql["scheduled"], given)

    def _matching(self, filter: Filter, view: View) -> Iterator[str]:
        if filter.state is not None:
            yield self._asked("u.state = {}", filter.state.value)
        if filter.queue is not None or filter.task is not None:
            yield self._asked("u.lane = any({}::integer[])", _lanes(view, filter.queue, filter.task))
        if filter.since is not None:
            yield self._asked("u.enqueued_at >= {}", from_datetime(filter.since))
        if filter.until is not None:
            yield self._asked("u.enqueued_at < {}", from_datetime(filter.until))
        if filter.tag is not None:
            yield self._asked("u.tags::jsonb ? {}", filter.tag)

    def _asked(self, words: str, value: Any) -> str:
        self.match.append(value)
        return words.format(f"${1 + len(self.begin) + len(self.match)}")


def _lanes(view: View, queue: str | None, task: str | None) -> list[int]:
    return [lane.id for lane in view.lanes.values() if queue in (None, lane.queue) and task in (None, lane.task)]


def _job(row: Any, lane: Lane, kept: Sequence[Attempt]) -> Job:
    """A job whose lane stands in another table, and whose attempts may have moved into its own row when it ended."""
    names = {"task": lane.task, "queue": lane.queue, "priority": lane.priority}
    parent_id = None if row["parent_id"] is None else str(row["parent_id"])
    attempts = kept if row["attempts"] is None else [shown(record) for record in _attempts.decode(row["attempts"])]
    return job_of({**row, **names, "id": str(row["id"]), "parent_id": parent_id}, attempts)
