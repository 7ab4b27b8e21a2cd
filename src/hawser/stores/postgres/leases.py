"""Leases: lengthened while their runs go on, taken back when they have run out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from hawser.clock import to_us
from hawser.ids import is_id
from hawser.job import State
from hawser.outcome import Step, abandoned
from hawser.store import HISTORY, LeaseRef, LeaseStatus, Reclaimed
from hawser.stores.postgres.claims import GRACE
from hawser.stores.postgres.directory import Directory
from hawser.stores.postgres.server import Server
from hawser.stores.postgres.settle import NOWHERE, Leaving, Run, count, leave_arguments, standings

LOOKED_AT: Final = 1_000
"""Claims that one reclaim looks at, at the most."""

BEHIND: Final = to_us(10.0)
"""How far behind the last reclaim the next one begins: a claim may have been long in committing. Were it to begin at the left,
it would read past all claims that were ever looked at and cannot be vacuumed while somebody holds an old snapshot."""

WHOLE_EVERY: Final = 60.0
"""Seconds after which one begins there all the same: whoever looked at a claim before may have died of it."""


class Leases:
    """The extensions and reclaims of one process."""

    def __init__(self, server: Server, directory: Directory) -> None:
        self._server = server
        self._directory = directory
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
        line, statement = self._server.line("keep"), self._server.sql["extend"]
        rows = await line.rows(statement, self._server.given, *asked, to_us(lease_for), GRACE)
        # Only one lease of a job can be the current one.
        held = {(id, lease): cancel_asked for id, lease, cancel_asked in rows}
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
            await count(self._server, [standing[id][-1] if id in standing else NOWHERE for id in stale], "stale")
        return answers

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        statement = self._server.sql["asked_to_stop"]
        rows = await self._server.line("keep").rows(statement, list(workers), writing=False)
        return [LeaseRef(id, lease) for id, lease in rows]

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        server, line = self._server, self._server.line("reclaim")
        now = await line.value(server.sql["clock"], server.given, writing=False)
        server.saw(now)
        if server.set_back > self._cut_after:
            cut_after = server.set_back
            await line.rows(server.sql["cut_leases"], server.given)
            self._cut_after, self._done_to = cut_after, 0
        begin = self._begin()
        reclaimed: list[Reclaimed] = []
        rows = await line.rows(server.sql["expired"], server.given, limit, begin, writing=False)
        claims, lost = rows[0][0], [row[1:] for row in rows if row[1] is not None]
        gone: set[str] = set()
        if lost:
            leaving = [Leaving(run, _abandoned(run, row[6])) for row in lost for run in (Run(*row[:6]),)]
            ordered = sorted(leaving, key=lambda each: each.run.id)
            asked = leave_arguments(server.given, ordered, lost=True)
            gone = {ordered[row[0] - 1].run.id for row in await line.rows(server.sql["leave"], *asked)}
            if long := [run.id for run, _ in leaving if run.id in gone and run.lease > HISTORY]:
                await line.rows(server.sql["trim_attempts"], long, HISTORY)
            for (run, step), (*_, worker, lane) in zip(leaving, lost, strict=True):
                if run.id in gone:
                    reclaimed.append(await self._reclaimed(run, worker, lane, step.state))
        if claims:
            await line.rows(server.sql["look_later"], server.given, begin)
        if claims < LOOKED_AT and len(gone) == len(lost) < limit:
            self._done_to = now - BEHIND
        return reclaimed

    def _begin(self) -> int:
        """From where to look at claims: those that were due before have been looked at, by us or by another."""
        if time.monotonic() - self._whole_at < WHOLE_EVERY:
            return self._done_to
        self._whole_at = time.monotonic()
        return 0

    async def _reclaimed(self, run: Run, worker: str, lane: int, state: State) -> Reclaimed:
        found = await self._directory.lane(lane, self._server.line("reclaim"))
        return Reclaimed(run.id, found.task, found.queue, worker, run.attempt, state)


def _abandoned(run: Run, worker: str) -> Step:
    return abandoned(worker, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=run.cancel_asked)
