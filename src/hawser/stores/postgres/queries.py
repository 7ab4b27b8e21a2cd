"""The operator's reads. None of them holds a lock that a claim or a settlement would wait for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hawser.batch import BatchState
from hawser.clock import at, to_us
from hawser.job import Attempt, Job, State
from hawser.limit import Limit
from hawser.policy import QueuePolicy
from hawser.store import (
    DUE_COUNTED,
    ERROR_TOLD,
    GONE,
    WAIT_COUNTED,
    WAITS_TOLD,
    WORKER_KEPT,
    AuditRecord,
    DeadGroup,
    DeadGroups,
    DeadLetters,
    Filter,
    GroupWait,
    JobEnd,
    Page,
    Pause,
    QueueStats,
    Upstream,
    Waits,
    Weight,
    WorkerSeen,
)
from hawser.stores.postgres.enqueue_arguments import made_on
from hawser.stores.postgres.figures import DepthRows, Figures, Head, depth_rows, heads_of, stats_of, sums_of
from hawser.stores.postgres.lane_catalog import CatalogLane, LaneCatalog
from hawser.stores.postgres.managed_connection import BEGIN_READING
from hawser.stores.postgres.search import ALL_JOBS, LOOK_FOR, SCAN, Search, lanes_of
from hawser.stores.postgres.server import Server
from hawser.stores.record import BLANK, Record, audit_of, end_of, job_of, letter_of, pause_of, shown, worker_of
from hawser.stores.tally import ATTEMPT_MINUTES, RATE_MINUTES
from hawser.value.ids import is_id

_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_attempts = msgspec.json.Decoder(list[Record])


class Queries:
    """What people, the API and charts look at."""

    def __init__(self, server: Server, catalog: LaneCatalog) -> None:
        self._server = server
        self._catalog = catalog

    async def _rows(self, name: str, *arguments: Any) -> Sequence[Any]:
        return await self._server.connection("read").rows(self._server.sql[name], *arguments, writing=False)

    async def waits(self, id: str) -> Waits | None:
        rows = await self._rows("waits", id) if is_id(id) else []
        if not rows:
            return None
        [(total, left)] = rows
        told = await self._rows("waits_told", id, WAITS_TOLD)
        return Waits(total, left, tuple(_upstream(*row) for row in told))

    async def group_wait(self, id: str) -> GroupWait | None:
        rows = await self._rows("group_wait", self._server.given, id, WAIT_COUNTED) if is_id(id) else []
        if not rows:
            return None
        [(limit, running, started, opens_at, *rest)] = rows
        known = None if limit is None else msgspec.json.decode(limit, type=Limit)
        return GroupWait(known, running, started, None if opens_at is None else at(opens_at), *rest)

    async def ended(self, ids: Sequence[str]) -> list[JobEnd | None]:
        asked = [id for id in ids if is_id(id)]
        rows = await self._rows("endings", asked, made_on(asked), self._server.given) if asked else []
        connection = self._server.connection("read")
        known = {id: end_of((await self._catalog.lane(lane, connection)).task, *rest) for id, lane, *rest in rows}
        return [known.get(id, GONE) for id in ids]

    async def get(self, id: str) -> Job | None:
        if not is_id(id):
            return None
        sql = self._server.sql
        union = " union all ".join(f"({sql[table]} where j.id = $1)" for table in ALL_JOBS)
        jobs = await self._jobs(await self._server.connection("read").rows(union, id, writing=False))
        return jobs[0] if jobs else None

    async def find(self, filter: Filter, after: str | None, limit: int) -> Page:
        if not all(given is None or is_id(given) for given in (after, filter.parent_id, filter.batch)):
            return Page([])
        if filter.waiting and filter.state not in (None, State.READY):
            return Page([])
        if filter.group is not None and (filter.waiting or filter.state not in (None, State.DEAD)):
            return Page([])
        connection = self._server.connection("read")
        view = await self._catalog.read(connection) if filter.queue or filter.task or filter.group else self._catalog.view
        search = Search(self._server.sql, filter, view, self._server.given)
        last, searched, end = after or _LAST, 0, time.monotonic() + LOOK_FOR
        if search.may_narrow():
            await connection.together(search.narrow(last), begin=BEGIN_READING, writing=False)
        while True:
            rows, seen, behind = await connection.together(search.look(last, limit), begin=BEGIN_READING, writing=False)
            if len(rows) > limit:
                return Page(await self._jobs(rows[:limit]), str(rows[limit - 1]["id"]), searched + limit)
            searched += seen
            if seen < SCAN:
                return Page(await self._jobs(rows), None, searched)
            last = str(behind)
            if rows or time.monotonic() >= end:
                return Page(await self._jobs(rows), last, searched)

    async def _jobs(self, rows: Sequence[Any]) -> list[Job]:
        kept: dict[str, list[Attempt]] = {str(row["id"]): [] for row in rows}
        if tried := [str(row["id"]) for row in rows if row["lease"] and row["attempts"] is None]:
            for id, *record in await self._rows("attempts", tried):
                kept[id].append(shown(tuple(record)))
        connection = self._server.connection("read")
        return [_job(row, await self._catalog.lane(row["lane"], connection), kept[str(row["id"])]) for row in rows]

    async def dead_letters(self, queue: str | None, task: str | None, after: str | None, limit: int) -> DeadLetters:
        if after is not None and not is_id(after):
            return DeadLetters([], 0)
        connection = self._server.connection("read")
        lanes = lanes_of(await self._catalog.read(connection), queue, task) if queue or task else None
        rows = await self._rows("dead_letters", after or _LAST, lanes, BLANK, ERROR_TOLD, limit + 1)
        letters = []
        for id, number, error, finished_at in rows[:limit]:
            lane = await self._catalog.lane(number, connection)
            if queue in (None, lane.queue) and task in (None, lane.task):
                letters.append(letter_of(id, lane.task, lane.queue, error, finished_at))
        return DeadLetters(letters, len(rows[:limit]), rows[limit - 1][0] if len(rows) > limit else None)

    async def dead_groups(self, queue: str | None, task: str | None, limit: int) -> DeadGroups:
        rows = await self._rows("dead_groups", queue, task, limit + 1, BLANK, ERROR_TOLD)
        groups = []
        for name, fingerprint, count, first_at, id, number, error, finished_at in rows[:limit]:
            lane = await self._catalog.lane(number, self._server.connection("read"))
            letter = letter_of(id, lane.task, lane.queue, error, finished_at)
            groups.append(DeadGroup(name, fingerprint, count, at(first_at), letter))
        return DeadGroups(groups, await self.ungrouped(DUE_COUNTED), len(rows) > limit)

    async def ungrouped(self, most: int) -> int:
        """How many dead jobs have no fingerprint yet, counted up to a limit."""
        [(count,)] = await self._rows("count_ungrouped", most)
        return int(count)

    async def stats(self, queue: str | None) -> QueueStats:
        figures = await self._figures(queue)
        return stats_of(figures, figures.queues() if queue is None else (queue,))

    async def queues(self) -> dict[str, QueueStats]:
        figures = await self._figures(None)
        names = {*figures.holding(), *figures.paused, *await self._limited(), *await self.policies()}
        return {queue: stats_of(figures, (queue,)) for queue in sorted(names)}

    async def depths(self) -> DepthRows:
        """How many jobs stand where."""
        [(now, version, counts)] = await self._rows("depths", self._server.given, None)
        return await self._depths(now, version, counts)

    async def depths_and_heads(self) -> tuple[DepthRows, dict[int, list[Head]]]:
        """And the first jobs that wait, with none counted behind them."""
        [(now, version, counts, heads)] = await self._rows("depths_and_heads", self._server.given, None, 0)
        depths = await self._depths(now, version, counts)
        return depths, heads_of(depths, heads, 0)

    async def _depths(self, now: int, version: int, counts: str | None) -> DepthRows:
        if self._catalog.view.version != version:
            await self._catalog.read(self._server.connection("read"))
        return depth_rows(now, self._catalog.view, counts)

    async def _figures(self, queue: str | None) -> Figures:
        """Asked once for all queues, and not queue by queue, in one statement: how many waits for its answer is no matter of what
        waits."""
        asked = self._server.given, queue, DUE_COUNTED, ATTEMPT_MINUTES, RATE_MINUTES
        [row] = await self._rows("figures" if queue is None else "queue_figures", *asked)
        now, version, counts, heads, events, first, keys_over = row
        depths = await self._depths(now, version, counts)
        sums = sums_of(events)
        over = msgspec.json.decode(keys_over or "{}", type=dict[str, int])
        return Figures(depths, heads_of(depths, heads, DUE_COUNTED), sums, first if sums else None, over, depths.paused())

    async def pauses(self) -> list[Pause]:
        return [pause_of(*row) for row in await self._rows("pauses", self._server.given)]

    async def _limited(self) -> list[str]:
        """The queues that have a limit."""
        return [queue for (queue,) in await self._rows("limited_queues")]

    async def weights(self, queue: str | None) -> list[Weight]:
        return [Weight(*row) for row in await self._rows("weights", queue)]

    async def policies(self) -> dict[str, QueuePolicy]:
        return {queue: msgspec.json.decode(policy, type=QueuePolicy) for queue, policy in await self._rows("policies")}

    async def workers(self) -> list[WorkerSeen]:
        rows = await self._rows("workers", self._server.given, to_us(WORKER_KEPT))
        return [worker_of(*row) for row in rows]

    async def audit(self, limit: int, before: int | None, action: str | None, by: str | None) -> list[AuditRecord]:
        return [audit_of(*row) for row in await self._rows("audit", limit, before, action, by)]


def _job(row: Any, lane: CatalogLane, kept: Sequence[Attempt]) -> Job:
    """A job whose lane stands in another table, and whose attempts may have moved into its own row when it ended."""
    names = {"task": lane.task, "queue": lane.queue, "priority": lane.priority}
    ids = {name: None if row[name] is None else str(row[name]) for name in ("id", "parent_id", "batch")}
    attempts = kept if row["attempts"] is None else [shown(record) for record in _attempts.decode(row["attempts"])]
    return job_of({**row, **names, **ids}, attempts)


def _upstream(id: str, state: str, batch: str | None) -> Upstream:
    return Upstream(id, State(state)) if batch is None else Upstream(id, BatchState(state).job_state, batch)
