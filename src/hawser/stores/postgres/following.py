"""The jobs that follow from runs: added in the transaction that ends those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import asyncpg
import msgspec

from hawser.job import NewJob
from hawser.outcome import Held
from hawser.store import BEHIND_READ, Enqueued, Settlement
from hawser.stores.batches import CANCELLED, ENDED, any_batch, reason_against
from hawser.stores.circles import CircleFound, MemberWait, in_circles, member_waits
from hawser.stores.dependencies import UNKNOWN
from hawser.stores.postgres.dependencies import (
    hold_back_arguments,
    hold_parent_arguments,
    hold_run_arguments,
    join_arguments,
)
from hawser.stores.postgres.enqueue_arguments import EnqueueArguments, rounds
from hawser.stores.postgres.lane_catalog import Name
from hawser.stores.postgres.server import Server


class FollowStatements:
    """What a process does for jobs that follow from others."""

    def __init__(self, server: Server, wake: Callable[[set[str]], list[str]]) -> None:
        self._server = server
        self._wake = wake

    async def batches_of(self, con: asyncpg.Connection, settlements: Sequence[Settlement]) -> dict[str, str]:
        """The batches of these jobs, if one is followed by jobs of a batch."""
        if not any(any_batch(s.then) for s in settlements):
            return {}
        rows = await con.fetch(self._server.sql["batches_of"], [s.id for s in settlements])
        return {row["id"]: row["batch"] for row in rows}

    async def follow(
        self,
        con: asyncpg.Connection,
        settlements: Sequence[Settlement],
        lanes: Mapping[Name, int],
        patience: int,
        own: Mapping[str, str],
    ) -> set[str]:
        """Add the jobs that follow from these runs, also beyond the depth limit; says which are new. `own` has the batches of
        their jobs, by id."""
        jobs = [job for s in settlements for job in s.then]
        parents = [s.id for s in settlements for _ in s.then]
        reasons: dict[str, str] = {}
        if batched := any_batch(jobs):
            jobs, reasons = await self._joinable(con, jobs, parents, own, patience)
        added: list[tuple[NewJob, Enqueued]] = []
        for group in rounds(jobs):
            some = [jobs[n] for n in group]
            call = EnqueueArguments(some, [lanes[job.queue, job.task, job.priority] for job in some], [parents[n] for n in group])
            wake = self._wake({job.queue for job in some})
            asked = call.arguments(self._server.given, unlimited=True, wake=wake, patience=patience)
            said = await con.fetch(self._server.sql["follow"], *asked)
            added += zip(call.jobs, call.answers(said), strict=True)
        waiting = hold_back_arguments(
            self._server.given, [job for job, _ in added], [answer for _, answer in added], strict=False
        )
        if waiting is not None:
            await con.execute(self._server.sql["hold_back"], *waiting)
        new = {job.id for job, answer in added if answer.created}
        if not batched:
            return new
        holders = [
            MemberWait(job.id, job.batch, (answer.id,)) for job, answer in added if job.batch is not None and answer.id != job.id
        ]
        circles = await self._circles(con, holders, patience) if holders else {}
        for batch in set(own.values()) | {None}:
            these = [(job, answer) for job, answer in added if own.get(job.parent_id or "") == batch and job.id not in circles]
            joined = join_arguments(self._server.given, [job for job, _ in these], [answer for _, answer in these], batch)
            if joined is not None:
                await con.execute(self._server.sql["join_batches"], *joined)
        for reason in set(reasons.values()):
            doomed = [id for id, why in reasons.items() if why == reason]
            await con.fetch(self._server.sql["cancel"], self._server.given, doomed, reason)
        return new

    async def hold(self, con: asyncpg.Connection, settlement: Settlement, hold: Held, new: set[str]) -> None:
        """Hold a job that has just left running. What is over already is found when this is committed."""
        await self.hold_all(con, [(settlement, hold)])
        if hold.jobs:
            waiting = hold_parent_arguments(self._server.given, settlement.id, hold.jobs, new)
            await con.execute(self._server.sql["hold_back"], *waiting)

    async def hold_all(self, con: asyncpg.Connection, held: Sequence[tuple[Settlement, Held]]) -> None:
        """Hold jobs that have just left running, in one statement: one for each appended two rows for each."""
        await con.execute(self._server.sql["hold_runs"], *hold_run_arguments(self._server.given, held))

    async def _joinable(
        self, con: asyncpg.Connection, jobs: Sequence[NewJob], parents: Sequence[str], own: Mapping[str, str], patience: int
    ) -> tuple[list[NewJob], dict[str, str]]:
        """The jobs that follow, those without their batch that it does not take; and why these are cancelled, by id."""
        rows = await con.fetch(self._server.sql["joinable"], sorted({job.batch for job in jobs if job.batch is not None}))
        standing = {id: (cancelled, ended) for id, cancelled, ended in rows}
        reasons = {}
        for job, parent in zip(jobs, parents, strict=True):
            if job.batch is None:
                continue
            cancelled, ended = standing.get(job.batch, (False, False))
            why = UNKNOWN if job.batch not in standing else CANCELLED if cancelled else None
            if why is None and ended and own.get(parent) != job.batch:
                why = ENDED
            if why is not None:
                reasons[job.id] = reason_against(job.batch, why)
        if waits := [each for each in member_waits(jobs) if each.id not in reasons]:
            found = await self._circles(con, waits, patience)
            reasons |= {id: reason_against(each.batch, each.why) for id, each in found.items()}
        return [msgspec.structs.replace(job, batch=None) if job.id in reasons else job for job in jobs], reasons

    async def _circles(self, con: asyncpg.Connection, waits: Sequence[MemberWait], patience: int) -> Mapping[str, CircleFound]:
        """Those of the members that wait for what in turn waits for their batch, by id."""
        sql, upstream = self._server.sql, {id for each in waits for id in each.upstream}
        waiting = {id for (id,) in await con.fetch(sql["may_wait"], sorted(upstream), patience)}
        if not waiting:
            return {}
        behind: dict[str, set[str]] = {}
        batches = sorted({each.batch for each in waits if not waiting.isdisjoint(each.upstream)})
        for batch, id in await con.fetch(sql["waits_behind"], batches, BEHIND_READ + 1):
            behind.setdefault(batch, set()).add(id)
        return in_circles(waits, behind.__getitem__, waiting.intersection)
