"""The jobs that follow from runs: added in the transaction that ends those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import asyncpg
import msgspec

from hawser.job import NewJob
from hawser.outcome import Held
from hawser.store import Enqueued, Settlement
from hawser.stores.batches import CANCELLED, ENDED, any_batch, reason_against
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
        """Add the jobs that follow from these runs, whatever the depth limit; says which are new. `own` has the batches of their
        jobs, by id."""
        jobs = [job for s in settlements for job in s.then]
        parents = [s.id for s in settlements for _ in s.then]
        reasons: dict[str, str] = {}
        if batched := any_batch(jobs):
            jobs, reasons = await self._joinable(con, jobs, parents, own)
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
        for batch in set(own.values()) | {None}:
            these = [(job, answer) for job, answer in added if own.get(job.parent_id or "") == batch]
            joined = join_arguments(self._server.given, [job for job, _ in these], [answer for _, answer in these], batch)
            if joined is not None:
                await con.execute(self._server.sql["join_batches"], *joined)
        for reason in set(reasons.values()):
            doomed = [id for id, why in reasons.items() if why == reason]
            await con.fetch(self._server.sql["cancel"], self._server.given, doomed, reason)
        return new

    async def hold(self, con: asyncpg.Connection, settlement: Settlement, hold: Held, new: set[str]) -> None:
        """Hold a job that has just left running. What is over already is found when this is committed."""
        given, sql = self._server.given, self._server.sql
        await con.execute(sql["hold_run"], *hold_run_arguments(given, settlement, hold))
        if hold.jobs:
            await con.execute(sql["hold_back"], *hold_parent_arguments(given, settlement.id, hold.jobs, new))

    async def _joinable(
        self, con: asyncpg.Connection, jobs: Sequence[NewJob], parents: Sequence[str], own: Mapping[str, str]
    ) -> tuple[list[NewJob], dict[str, str]]:
        """The jobs that follow, those without their batch that it does not take; and why these are cancelled, by id."""
        rows = await con.fetch(self._server.sql["joinable"], sorted({job.batch for job in jobs if job.batch is not None}))
        standing = {id: (cancelled, ended) for id, cancelled, ended in rows}
        kept, reasons = [], {}
        for job, parent in zip(jobs, parents, strict=True):
            if job.batch is None:
                kept.append(job)
                continue
            cancelled, ended = standing.get(job.batch, (False, False))
            why = UNKNOWN if job.batch not in standing else CANCELLED if cancelled else None
            if why is None and ended and own.get(parent) != job.batch:
                why = ENDED
            if why is not None:
                reasons[job.id] = reason_against(job.batch, why)
            kept.append(job if why is None else msgspec.structs.replace(job, batch=None))
        return kept, reasons
