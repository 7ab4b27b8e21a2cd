"""Settle: outcomes, each fenced by its lease, each once.

What was done is one statement. What ended otherwise is decided by `outcome.follow`, from what the claim said of the job, and
written by a statement that holds only if the job still stands as it was taken for; if not, it is looked at and decided again.
No lock is held while a process thinks: it may be frozen there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import asyncpg

from hawser.clock import to_us
from hawser.ids import is_id
from hawser.outcome import Done, Step, follow
from hawser.store import HISTORY, Settled, Settlement
from hawser.stores.order import lane_of
from hawser.stores.postgres.batch import Batch, made_on, rounds
from hawser.stores.postgres.directory import Directory, Kind, Name
from hawser.stores.postgres.enqueue import BY_TURNS, PATIENCE
from hawser.stores.postgres.history import History
from hawser.stores.postgres.server import Server
from hawser.stores.postgres.trouble import Locked

TRIES: Final = 10
"""How often a step is decided anew because somebody asked for the run's end meanwhile."""

NOWHERE: Final = 0
"""The lane of a job that is not known."""

Key = tuple[str, int]
"""A run, by its job and its lease."""


class Run(NamedTuple):
    """A running job, as far as its next step depends on it. Same order as in `held`."""

    id: str
    lease: int
    attempt: int
    max_attempts: int
    returned: int
    cancel_asked: bool


class Leaving(NamedTuple):
    """A run on its way out of running, and where its job goes."""

    run: Run
    step: Step


def leave_arguments(given: int | None, leaving: Sequence[Leaving], *, lost: bool) -> tuple[Any, ...]:
    """The runs as the arguments of `leave`."""
    rows = []
    for run, step in leaving:
        attempt, returned = (run.attempt, run.returned) if step.burns else (run.attempt - 1, run.returned + 1)
        failure = step.failure
        rows.append(
            (
                *(run.id, run.lease, run.cancel_asked, step.state.value, Kind[lane_of(attempt, fresh=False).name]),
                *(to_us(step.after), attempt, returned, step.reason, step.word),
                *((failure.error, failure.traceback) if failure else (None, None)),
                run.attempt,
            )
        )
    return given, lost, *(list(column) for column in zip(*rows, strict=True))


class Settler:
    """The settlements of one process."""

    def __init__(self, server: Server, directory: Directory, history: History, wake: Callable[[set[str]], list[str]]) -> None:
        self._server = server
        self._directory = directory
        self._history = history
        self._wake = wake

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """A run that is settled twice in one call is settled by the first."""
        first: dict[Key, int] = {}
        for n, settlement in enumerate(settlements):
            if settlement.hint is not None or is_id(settlement.id):
                first.setdefault((settlement.id, settlement.lease), n)
        each = [settlements[n] for n in first.values()]
        done = [s for s in each if type(s.outcome) is Done and not s.then]
        other = [s for s in each if type(s.outcome) is not Done and not s.then]
        stood: set[Key] = set()
        if done:
            stood |= await self._finish(done)
        if other:
            stood |= await self._leave(other)
        if chained := [s for s in each if s.then]:
            stood |= await self._chain(chained)
        settled = {n for key, n in first.items() if key in stood}
        refused = [n for n in range(len(settlements)) if n not in settled]
        said = dict(zip(refused, await self._refused([settlements[n] for n in refused]), strict=True)) if refused else {}
        return [said.get(n, Settled.SETTLED) for n in range(len(settlements))]

    async def _finish(self, settlements: Sequence[Settlement]) -> set[Key]:
        """Runs that were done; gives those that stood."""
        line, statement = self._server.line("settle"), self._server.sql["finish"]
        ordered = in_lock_order(settlements)
        asked = finish_arguments(self._server.given, ordered)
        return _stood(ordered, await self._history.with_day(lambda: line.value(statement, *asked)))

    async def _leave(self, settlements: Sequence[Settlement]) -> set[Key]:
        """Runs that ended otherwise; gives those that stood."""
        line = self._server.line("settle")
        stood: set[Key] = set()
        left = in_lock_order(settlements)
        for turn in range(TRIES):
            runs = [hinted(s) for s in left] if turn == 0 and all(s.hint for s in left) else await self._held(left)
            pairs = [(s, run) for s, run in zip(left, runs, strict=True) if run is not None]
            if not pairs:
                break
            asked = leave_arguments(self._server.given, [Leaving(run, _step(s, run)) for s, run in pairs], lost=False)
            gone = {row[0] - 1 for row in await line.rows(self._server.sql["leave"], *asked)}
            stood |= {(run.id, run.lease) for n, (_, run) in enumerate(pairs) if n in gone}
            await self._trim([run for n, (_, run) in enumerate(pairs) if n in gone])
            left = [s for n, (s, _) in enumerate(pairs) if n not in gone]
        return stood

    async def _held(self, settlements: Sequence[Settlement], con: asyncpg.Connection | None = None) -> list[Run | None]:
        """The runs as they stand now, or None for those that stand no more."""
        asked = self._server.given, [s.id for s in settlements], [s.lease for s in settlements]
        statement = self._server.sql["held"]
        if con is None:
            rows = await self._server.line("settle").rows(statement, *asked, writing=False)
        else:
            rows = await con.fetch(statement, *asked)
        held = {(run.id, run.lease): run for *fields, is_over in rows if not is_over for run in (Run(*fields),)}
        return [held.get((s.id, s.lease)) for s in settlements]

    async def _trim(self, runs: Sequence[Run]) -> None:
        if long := [run.id for run in runs if run.lease > HISTORY]:
            await self._server.line("settle").rows(self._server.sql["trim_attempts"], long, HISTORY)

    async def _chain(self, settlements: Sequence[Settlement]) -> set[Key]:
        """Runs from which jobs follow. Somebody may be about to take a key of such a job: then they wait by turns, and their rows
        are not locked in between, so that their leases can be lengthened."""
        end = time.monotonic() + self._server.address.timeout
        with suppress(Locked):
            return await self._directory.surely(lambda: self._together(settlements, PATIENCE))
        stood: set[Key] = set()
        left = deque(settlements)
        while left:
            one = left.popleft()
            try:
                stood |= await self._directory.surely(lambda one=one: self._together([one], BY_TURNS))  # type: ignore[misc]
            except Locked:
                if time.monotonic() >= end:
                    raise
                left.append(one)
                await asyncio.sleep(BY_TURNS / 1_000)
        return stood

    async def _together(self, settlements: Sequence[Settlement], patience: int) -> set[Key]:
        """Each run and the jobs that follow from it are written in one transaction."""
        line = self._server.line("chain")
        names = {(job.queue, job.task, job.priority) for s in settlements for job in s.then}
        lanes = await self._directory.make(names, line)

        async def all_done(con: asyncpg.Connection) -> set[Key]:
            asked = finish_arguments(self._server.given, done)
            stood = _stood(done, await con.fetchval(self._server.sql["finish"], *asked))
            await self._follow(con, [s for s in done if (s.id, s.lease) in stood], lanes, patience)
            return stood

        def one_other(settlement: Settlement) -> Callable[[asyncpg.Connection], Awaitable[bool]]:
            async def work(con: asyncpg.Connection) -> bool:
                [run] = await self._held([settlement], con)
                if run is None:
                    return False
                asked = leave_arguments(self._server.given, [Leaving(run, _step(settlement, run))], lost=False)
                if not await con.fetch(self._server.sql["leave"], *asked):
                    return False
                await self._follow(con, [settlement], lanes, patience)
                return True

            return work

        stood: set[Key] = set()
        if done := in_lock_order([s for s in settlements if type(s.outcome) is Done]):
            stood |= await self._history.with_day(lambda: line.together(all_done))
        for settlement in settlements:
            if type(settlement.outcome) is not Done and await line.together(one_other(settlement)):
                stood.add((settlement.id, settlement.lease))
        return stood

    async def _follow(
        self, con: asyncpg.Connection, settlements: Sequence[Settlement], lanes: Mapping[Name, int], patience: int
    ) -> None:
        """Add the jobs that follow from these runs, whatever the depth limit."""
        jobs = [job for s in settlements for job in s.then]
        parents = [s.id for s in settlements for _ in s.then]
        for group in rounds(jobs):
            some = [jobs[n] for n in group]
            batch = Batch(some, [lanes[job.queue, job.task, job.priority] for job in some], [parents[n] for n in group])
            wake = self._wake({job.queue for job in some})
            asked = batch.arguments(self._server.given, unlimited=True, wake=wake, patience=patience)
            await con.fetch(self._server.sql["enqueue"], *asked)

    async def _refused(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """What to say of settlements that the fence did not let through."""
        ids = [s.id for s in settlements]
        standing = await standings(self._server, ids)
        said, stale = [], []
        for settlement in settlements:
            lease, settled, running, lane = standing.get(settlement.id, (None, None, False, NOWHERE))
            if settlement.lease == lease == settled and not running:
                said.append(Settled.REPEATED)
            else:
                said.append(Settled.LOST)
                stale.append(lane)
        await count(self._server, stale, "stale")
        return said


async def standings(server: Server, ids: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Lease, last settled lease, whether it runs, and lane of jobs, by id."""
    known = [id for id in ids if is_id(id)]
    if not known:
        return {}
    line = server.line("settle")
    rows = await line.rows(server.sql["standing"], known, made_on(known), server.given, writing=False)
    return {id: rest for id, *rest in rows}


async def count(server: Server, lanes: Sequence[int], name: str) -> None:
    """Something happened to jobs of these lanes, once for each time that a lane is named."""
    if lanes:
        counts = Counter(lanes)
        asked = list(counts), [name] * len(counts), list(counts.values())
        await server.line("settle").rows(server.sql["count"], server.given, *asked)


def finish_arguments(given: int | None, settlements: Sequence[Settlement]) -> tuple[Any, ...]:
    """The settlements as the arguments of `finish`."""
    results = [s.outcome.result if isinstance(s.outcome, Done) else None for s in settlements]
    return (
        *(given, [s.id for s in settlements], [s.lease for s in settlements]),
        results if any(results) else None,
        None if all(s.keep for s in settlements) else [s.keep for s in settlements],
    )


def in_lock_order(settlements: Sequence[Settlement]) -> list[Settlement]:
    """The order in which everybody takes locks, so that nobody waits in a circle."""
    return sorted(settlements, key=lambda s: s.id)


def _stood(settlements: Sequence[Settlement], places: Sequence[int] | None) -> set[Key]:
    """Those that stood, by what `finish` says."""
    some = settlements if places is None else [settlements[place - 1] for place in places]
    return {(s.id, s.lease) for s in some}


def _step(settlement: Settlement, run: Run) -> Step:
    return follow(settlement.outcome, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=run.cancel_asked)


def hinted(settlement: Settlement) -> Run:
    """The run as its claim saw it; nobody has asked for its end, as far as we know."""
    attempt, max_attempts, returned = settlement.hint
    return Run(settlement.id, settlement.lease, attempt, max_attempts, returned, cancel_asked=False)
