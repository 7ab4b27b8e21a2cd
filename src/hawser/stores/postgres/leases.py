"""Leases: lengthened while their runs go on, taken back when they have run out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hawser.clock import to_us
from hawser.outcome import abandoned
from hawser.store import HISTORY, RECLAIM_WITHIN, LeaseRef, LeaseStatus, Reclaimed
from hawser.stores.postgres.enqueue_arguments import made_on
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.leaving import NOT_THERE, LeavingRun, RunningRow, count, leave_arguments, standings
from hawser.stores.postgres.server import Server
from hawser.stores.postgres.set_back import SetBack
from hawser.stores.postgres.taking import GRACE
from hawser.stores.tally import STALE_EXTENSION
from hawser.value.ids import is_id

LOOKED_AT: Final = 1_000
"""Claims that one reclaim looks at, at the most."""

BEHIND: Final = to_us(10.0)
"""How far behind the last reclaim the next one begins: a claim may have been long in committing. Were it to begin at the left,
it would read past all claims that were ever looked at and cannot be vacuumed while a transaction holds an old snapshot."""

WHOLE_EVERY: Final = 60.0
"""Seconds after which a reclaim begins at the left all the same: the process that looked at a claim may have died before it
wrote."""


class LostRun(NamedTuple):
    """A run whose lease has run out, and where its job goes."""

    leaving: LeavingRun
    worker: str
    lane: int
    renewed: bool
    """The lease was lengthened at least once."""


class Leases:
    """The ends of leases, and what they bring. Here the extensions and reclaims of one process."""

    def __init__(self, server: Server, catalog: LaneCatalog, set_back: SetBack) -> None:
        self._server = server
        self._catalog = catalog
        self._set_back = set_back
        self._cut_after = 0
        self._done_to = 0
        self._whole_at = 0.0

    async def extend(self, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
        wanted: dict[tuple[str, int], bytes | None] = {}
        for ref in leases:
            if is_id(ref.id):
                wanted[ref.id, ref.lease] = ref.progress or wanted.get((ref.id, ref.lease))
        ordered = sorted(wanted)
        asked = [id for id, _ in ordered], [lease for _, lease in ordered], [wanted[key] for key in ordered]
        connection, statement = self._server.connection("keep"), self._server.sql["extend"]
        rows = await connection.rows(statement, self._server.given, *asked, to_us(lease_for), GRACE)
        # Only one lease of a job can be the current one.
        held = {(id, lease): cancel_asked for id, lease, cancel_asked in rows}
        if len(held) < len(wanted):
            # Locked by a handler that is about to settle its run, or gone. The first stand until that transaction ends.
            left = [key for key in ordered if key not in held]
            runs = [id for id, _ in left], [lease for _, lease in left]
            standing_runs = self._server.sql["standing_runs"]
            found = await connection.rows(standing_runs, self._server.given, *runs, to_us(lease_for), GRACE, writing=False)
            held |= {(id, lease): cancel_asked for id, lease, cancel_asked in found}
        answers, stale = [], []
        for ref in leases:
            cancel_asked = held.get((ref.id, ref.lease))
            if cancel_asked is None:
                stale.append(ref.id)
                answers.append(LeaseStatus.LOST)
            else:
                answers.append(LeaseStatus.CANCEL_ASKED if cancel_asked else LeaseStatus.HELD)
        if stale:
            standing = await standings(self._server, stale)
            await count(self._server, [standing.get(id, NOT_THERE).lane for id in stale], STALE_EXTENSION)
        return answers

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        ids = [ref.id for ref in leases if is_id(ref.id)]
        if not ids:
            return [None] * len(leases)
        server = self._server
        rows = await server.connection("settle").rows(server.sql["holders"], ids, made_on(ids), server.given, writing=False)
        known = {(id, lease): worker for id, lease, worker in rows}
        return [known.get((ref.id, ref.lease)) for ref in leases]

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        statement = self._server.sql["asked_to_stop"]
        rows = await self._server.connection("keep").rows(statement, list(workers), writing=False)
        return [LeaseRef(id, lease) for id, lease in rows]

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        server, connection = self._server, self._server.connection("reclaim")
        began = time.monotonic()
        now = await self._set_back.mend(connection)
        if connection.is_new():
            # Another server may answer now: what was looked at before was perhaps not looked at there.
            self._done_to = 0
        if server.set_back > self._cut_after:
            cut_after = server.set_back
            await connection.rows(server.sql["cut_leases"], server.given)
            self._cut_after, self._done_to = cut_after, 0
        begin = self._begin()
        rows = await connection.rows(server.sql["expired"], server.given, limit, begin, writing=False)
        claims, lost = rows[0]["claims"], [_lost(row) for row in rows if row["id"] is not None]
        if time.monotonic() - began > RECLAIM_WITHIN:
            return []
        gone: set[str] = set()
        reclaimed: list[Reclaimed] = []
        if lost:
            ordered = sorted((each.leaving for each in lost), key=lambda leaving: leaving.run.id)
            asked = leave_arguments(server.given, ordered, lost=True)
            gone = {ordered[row["n"] - 1].run.id for row in await connection.rows(server.sql["leave"], *asked)}
            if long := [run.id for run, _ in ordered if run.id in gone and run.lease > HISTORY]:
                await connection.rows(server.sql["trim_attempts"], long, HISTORY)
            reclaimed = [await self._reclaimed(each) for each in lost if each.leaving.run.id in gone]
        if claims:
            await connection.rows(server.sql["look_later"], server.given, begin)
        if claims < LOOKED_AT and len(gone) == len(lost) < limit:
            self._done_to = now - BEHIND
        return reclaimed

    def _begin(self) -> int:
        """From where to look at claims: those that were due before have been looked at, by this process or another."""
        if time.monotonic() - self._whole_at < WHOLE_EVERY:
            return self._done_to
        self._whole_at = time.monotonic()
        return 0

    async def _reclaimed(self, lost: LostRun) -> Reclaimed:
        run, step = lost.leaving
        lane = await self._catalog.lane(lost.lane, self._server.connection("reclaim"))
        return Reclaimed(run.id, lane.task, lane.queue, lost.worker, run.attempt, step.state, lost.renewed, step.due_in)


def _lost(row: Mapping[str, Any]) -> LostRun:
    run = RunningRow(**{name: row[name] for name in RunningRow._fields})
    worker, renewed = row["worker"], row["renewed"]
    step = abandoned(worker, renewed=renewed, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=run.cancel_asked)
    return LostRun(LeavingRun(run, step), worker, row["lane"], renewed)
