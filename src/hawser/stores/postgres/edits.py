"""The changes of single jobs. Each is one transaction, and leaves its audit record there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import asyncpg

from hawser.store import Acted, Actor, Change
from hawser.stores.order import Lane, changed_due, changed_place
from hawser.stores.postgres.lane_catalog import GROUPED_KIND, Kind
from hawser.stores.postgres.managed_connection import IMPATIENT
from hawser.stores.postgres.operations import Act, Action, OperatorStatements
from hawser.stores.postgres.server import Server
from hawser.value.fingerprint import fingerprint

_KINDS: Final = {Lane.FRESH: Kind.LATE, Lane.TIMED: Kind.TIMED, Lane.RETRYING: Kind.RETRYING}
"""A job that comes to a place where claims have been already goes to the kind that has no frontier."""


class WaitingJob(NamedTuple):
    """A job that is changed. Same order as in `waiting_jobs`."""

    id: str
    lane: int
    queue: str
    task: str
    priority: int
    run_at: int
    attempt: int
    key: str | None
    group: str | None
    now: int


class EditStatements:
    """What a person changes of single jobs."""

    def __init__(self, server: Server, operations: OperatorStatements) -> None:
        self._server = server
        self._operations = operations

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        return await self._operations.act("change", ids, actor, self.changing(change))

    def changing(self, change: Change) -> Act:
        async def act(action: Action, ids: Sequence[str]) -> dict[str, Acted]:
            rows = await action.rows("waiting_jobs", list(ids), self._server.given)
            jobs = sorted(map(WaitingJob._make, rows), key=lambda job: ids.index(job.id))  # who is named first gets a key
            return {job.id: await self._change(action, job, change) for job in jobs}

        return act

    async def _change(self, action: Action, job: WaitingJob, change: Change) -> Acted:
        queue = job.queue if change.queue is None else change.queue
        priority = job.priority if change.priority is None else change.priority
        name = [queue], [job.task], [priority]
        # In this very transaction: what this process knows of lanes may be of before the database was set back.
        found = await action.rows("lanes_named", *name)
        if job.group is not None or not found:
            await action.rows("make_lanes", *name, [job.group is not None])
            found = await action.rows("lanes_named", *name)
        lane = found[0][0]
        if job.key is not None and queue != job.queue and not await _move_key(action, job, queue, lane):
            return Acted.KEY_TAKEN
        run_at, place = changed_place(job.attempt, changed_due(change, job.run_at, job.now), job.now)
        kind = _KINDS[place] if job.group is None else _KINDS[place] + GROUPED_KIND
        await action.rows("change", job.id, lane, kind, run_at)
        return Acted.DONE

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        async def act(action: Action, ids: Sequence[str]) -> dict[str, Acted]:
            waiting = [id for id, *_ in await action.rows("waiting_jobs", list(ids), self._server.given)]
            if waiting:
                errors = {row[0]: row[1] for row in await action.rows("last_errors", waiting)}
                kinds = [fingerprint(errors[id] or actor.reason) for id in waiting]
                await action.rows("end_dead", self._server.given, waiting, kinds, actor.reason)
            return dict.fromkeys(waiting, Acted.DONE)

        return await self._operations.act("dead_letter", ids, actor, act)

    async def end_leases(self, worker: str, actor: Actor) -> int:
        async def work(con: asyncpg.Connection) -> int:
            ended: int = await con.fetchval(self._server.sql["end_leases"], self._server.given, worker)
            if ended:
                await self._operations.note_within(con, "reclaim_worker", f"worker:{worker}", ended, actor)
            return ended

        return await self._server.connection("operate").together(work, begin=IMPATIENT)


async def _move_key(action: Action, job: WaitingJob, queue: str, lane: int) -> bool:
    """Let the job's hold go along into another queue; False when another job holds the key there."""
    there: tuple[Any, ...] = (queue, job.task, job.key, job.id)
    if not await action.hold(queue, job.task, job.key or "", job.id, lane):
        return False
    gone = await action.rows("let_go", job.queue, job.task, job.key, job.id)
    if gone:
        await action.rows("hold_until", *there, gone[0][0])
        await action.count("@keys", job.lane, -1)
    else:
        await action.rows("let_go", *there)  # it held none
        await action.count("@keys", lane, -1)
    return True
