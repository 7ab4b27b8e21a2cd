"""Settle: outcomes, each fenced by its lease, each once.

What was done is one statement. What ended otherwise is decided by `outcome.follow`, from what the claim said of the job, and
written by a statement that applies only if the job is unchanged since; otherwise the job is read and decided again.
No lock is held while Python decides: the process may be frozen there.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import asyncpg
import msgspec
from msgspec import structs

from hawser.clock import MAX_DELAY, to_us
from hawser.job import State
from hawser.outcome import Held, Step, follow, holds, worked
from hawser.store import HISTORY, SettleAnswer, Settled, Settlement
from hawser.stores.batches import any_tied
from hawser.stores.postgres.dependencies import DependencyStatements
from hawser.stores.postgres.enqueue import BY_TURNS, KEY_WAIT_MS
from hawser.stores.postgres.errors import Locked
from hawser.stores.postgres.following import FollowStatements
from hawser.stores.postgres.history import History
from hawser.stores.postgres.lane_catalog import CatalogLane, Hint, LaneCatalog, Name
from hawser.stores.postgres.leaving import NOT_THERE, NOWHERE, LeavingRun, RunningRow, count, hinted, leave_arguments, standings
from hawser.stores.postgres.managed_connection import IMPATIENT
from hawser.stores.postgres.server import Purpose, Server
from hawser.stores.postgres.settle_arguments import Key, are_plain, finish_arguments, in_lock_order, leaves_something, sorted_out
from hawser.stores.waits import followers

SETTLE_TRIES: Final = 10
"""How often a step is decided again because an operator asked the run to end meanwhile."""


class Went(NamedTuple):
    """Where a settled job went, and the lane that says of which task and queue it is."""

    lane: int
    step: Step
    attempt: int
    max_attempts: int


WAITED_FOR: Final = "!"
"""Stands in front of the answer of `finish` when other jobs wait for one that has ended."""

_DONE: Final = Step(State.DONE, "done")


class SettleStatements:
    """The settlements of one process."""

    def __init__(
        self,
        server: Server,
        catalog: LaneCatalog,
        history: History,
        wake: Callable[[set[str]], list[str]],
        dependencies: DependencyStatements,
    ) -> None:
        self._server = server
        self._catalog = catalog
        self._history = history
        self._wake = wake
        self._dependencies = dependencies
        self._following = FollowStatements(server, wake)

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        """A run that is settled twice in one call is settled by the first."""
        plain = not self._dependencies.in_use and are_plain(settlements)
        said = await self._write_done(in_lock_order(settlements)) if plain else None
        if plain and said is None and not self._dependencies.in_use:
            hot = await self._all_done(settlements)
            await self._make_room_for(hot)
            return hot
        first, done, other, apart = sorted_out(settlements)
        told: set[bool] = set()
        if done and not plain:
            said = await self._write_done(in_lock_order(done))
        answers: dict[Key, SettleAnswer] = await self._finish(done, said, told) if done else {}
        went: dict[Key, Went] = await self._leave(other, told) if other else {}
        if apart:
            went |= await self._chain(apart)
        if self._dependencies.in_use:
            ended = [id for id, _ in answers] + [id for (id, _), to in went.items() if to.step.state is not State.READY]
            told.add(await self._dependencies.tell_ended(ended, "settle") or bool(apart))
        if True in told:
            await self._dependencies.go_on("settle", new=bool(apart))
        if went:
            lanes = await self._lanes({to.lane for to in went.values()})
            answers |= {key: _answer(Settled.SETTLED, lanes[to.lane], to) for key, to in went.items()}
        if any(to.step.crashed for to in went.values()):
            # Their claimer is dead: this process may claim nothing, and then it does not hear of new limits.
            await self._catalog.read(self._server.connection("settle"))
        await self._make_room_for(answers.values())
        placed: list[SettleAnswer | None] = [None] * len(settlements)
        for key, n in first.items():
            placed[n] = answers.get(key)
        if None in placed:
            left = [s for s, answer in zip(settlements, placed, strict=True) if answer is None]
            refused = await self._refused(left)
            await self._go_on_behind(left, refused)
            rest = iter(refused)
            return [next(rest) if answer is None else answer for answer in placed]
        return [answer for answer in placed if answer is not None]

    async def _go_on_behind(self, settlements: Sequence[Settlement], answers: Sequence[SettleAnswer]) -> None:
        """What was settled before may have been so in a transaction of the handler's own, which goes on with nothing."""
        before = [(s, answer) for s, answer in zip(settlements, answers, strict=True) if answer.said is Settled.REPEATED]
        if before and self._dependencies.in_use:
            await self._dependencies.tell_ended([s.id for s, answer in before if answer.state is not State.READY], "settle")
            await self._dependencies.go_on("settle", new=True)
        await self._make_room_for(answer for _, answer in before)

    async def _make_room_for(self, settled: Iterable[SettleAnswer]) -> None:
        await self.make_room_known(((answer.queue, answer.task) for answer in settled), "settle")

    async def make_room_known(self, ended: Iterable[tuple[str | None, str | None]], purpose: Purpose) -> None:
        """Wake claimers that a limit may have kept back, here and elsewhere. `ended` are the queues and tasks of runs."""
        view = self._catalog.view
        if not view.limits and not view.group_limits:
            return
        limited = {
            *((target.kind, target.name) for target in view.limits.values()),
            *(("task", task) for task in view.group_limits),
        }
        queues = {queue for queue, task in ended if ("queue", queue) in limited or ("task", task) in limited}
        if queues and (told := self._wake({f"room in {queue}" for queue in queues})):
            await self._server.connection(purpose).rows(self._server.sql["wake"], told)

    async def _lanes(self, ids: set[int]) -> Mapping[int, CatalogLane]:
        """The lanes, with these among them."""
        view = self._catalog.view
        return (view if ids <= view.lanes.keys() else await self._catalog.read(self._server.connection("settle"))).lanes

    async def _write_done(self, settlements: Sequence[Settlement]) -> str | None:
        """Runs that were done; gives what `finish` says of them: nothing when all stood, each known from its claim."""
        connection = self._server.connection("settle")
        name, asked = finish_arguments(self._server.given, settlements)
        statement = self._server.sql[name]
        said: str | None = await self._history.with_day(lambda: connection.value(statement, *asked))
        return said

    async def _all_done(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        """The answers when all stood and each is known from its claim: the hot path. Most have the same answer."""
        hints: list[Hint] = [s.hint for s in settlements]
        same: dict[Hint, SettleAnswer] = {}
        different = set(hints)
        lanes = await self._lanes({lane for *_, lane in different})
        for hint in different:
            attempt, max_attempts, _, lane = hint
            _, queue, task, *_ = lanes[lane]
            same[hint] = SettleAnswer(Settled.SETTLED, task, queue, State.DONE, None, attempt, max_attempts)
        return [same[hint] for hint in hints]

    async def _finish(self, settlements: Sequence[Settlement], said: str | None, told: set[bool]) -> dict[Key, SettleAnswer]:
        """Runs that were done, of which `finish` said this; gives those that stood. `told`: whether others wait for one."""
        if said is None:
            return {(s.id, s.lease): answer for s, answer in zip(settlements, await self._all_done(settlements), strict=True)}
        told.add(said.startswith(WAITED_FOR))
        finished = _finished(settlements, said)
        lanes = await self._lanes({to.lane for to in finished.values()})
        return {key: _answer(Settled.SETTLED, lanes[to.lane], to) for key, to in finished.items()}

    async def _leave(self, settlements: Sequence[Settlement], told: set[bool]) -> dict[Key, Went]:
        """Runs that ended otherwise; gives those that stood."""
        connection = self._server.connection("settle")
        went: dict[Key, Went] = {}
        left = in_lock_order(settlements)
        for turn in range(SETTLE_TRIES):
            if not left:
                break
            runs = [hinted(s) for s in left] if turn == 0 and all(s.hint for s in left) else await self._held(left)
            pairs = [(s, run) for s, run in zip(left, runs, strict=True) if run is not None]
            if not pairs:
                break
            leaving = [LeavingRun(run, _step(s, run)) for s, run in pairs]
            asked = leave_arguments(self._server.given, leaving, lost=False)
            rows = await connection.rows(self._server.sql["leave"], *asked)
            lanes = {place - 1: lane for place, lane, _ in rows}
            told.update(waited_for for *_, waited_for in rows)
            gone = [
                (run, Went(lanes[n], step, run.attempt, run.max_attempts)) for n, (run, step) in enumerate(leaving) if n in lanes
            ]
            went |= {(run.id, run.lease): to for run, to in gone}
            await self._trim([run for run, _ in gone])
            left = [s for n, (s, _) in enumerate(pairs) if n not in lanes]
        return went

    async def _held(self, settlements: Sequence[Settlement], con: asyncpg.Connection | None = None) -> list[RunningRow | None]:
        """The runs as they stand now, or None for those that stand no more."""
        asked = [s.id for s in settlements], [s.lease for s in settlements]
        statement = self._server.sql["held"]
        if con is None:
            rows = await self._server.connection("settle").rows(statement, *asked, writing=False)
        else:
            rows = await con.fetch(statement, *asked)
        held = {(run.id, run.lease): run for run in (RunningRow(*row) for row in rows)}
        return [held.get((s.id, s.lease)) for s in settlements]

    async def _trim(self, runs: Sequence[RunningRow]) -> None:
        if long := [run.id for run in runs if run.lease > HISTORY]:
            await self._server.connection("settle").rows(self._server.sql["trim_attempts"], long, HISTORY)

    async def _chain(self, settlements: Sequence[Settlement]) -> dict[Key, Went]:
        """Runs from which jobs follow. Another transaction may be about to take a key of such a job: then the runs wait by turns,
        and their rows are not locked in between, so that their leases can be extended."""
        end = time.monotonic() + self._server.address.timeout
        with suppress(Locked):
            return await self._catalog.surely(lambda: self._together(settlements, KEY_WAIT_MS))
        went: dict[Key, Went] = {}
        left = deque(settlements)
        while left:
            one = left.popleft()
            try:
                went |= await self._catalog.surely(lambda one=one: self._together([one], BY_TURNS))  # type: ignore[misc]
            except Locked:
                if time.monotonic() >= end:
                    raise
                left.append(one)
                await asyncio.sleep(BY_TURNS / 1_000)
        return went

    async def _together(self, settlements: Sequence[Settlement], patience: int) -> dict[Key, Went]:
        """Each run and the jobs that follow from it are written in one transaction."""
        connection = self._server.connection("chain")
        lanes = await self._catalog.make_for((job for s in settlements for job in s.then), connection)
        if any(holds(s.outcome) or any_tied(s.then) for s in settlements):
            await self._dependencies.use(connection)

        async def all_done(con: asyncpg.Connection) -> dict[Key, Went]:
            name, asked = finish_arguments(self._server.given, done)
            own = await self._following.batches_of(con, done)
            finished = _finished(done, await con.fetchval(self._server.sql[name], *asked))
            await self._following.follow(con, [s for s in done if (s.id, s.lease) in finished], lanes, patience, own)
            if removed := [s.id for s in done if leaves_something(s)]:
                await con.execute(self._server.sql["forget_steps"], removed)
                await con.execute(self._server.sql["forget_output"], removed)
            return finished

        went: dict[Key, Went] = {}
        if done := in_lock_order([s for s in settlements if worked(s.outcome)]):
            went |= await self._history.with_day(lambda: connection.together(all_done, begin=IMPATIENT))
        held, others = _held_alone([s for s in settlements if not worked(s.outcome)])
        if held:
            went |= await connection.together(partial(self._hold, held), begin=IMPATIENT)
        for settlement in others:
            went |= await connection.together(partial(self._end_other, settlement, lanes, patience), begin=IMPATIENT)
        return went

    async def _hold(self, settlements: Sequence[Settlement], con: asyncpg.Connection) -> dict[Key, Went]:
        """Runs that wait for events, in one transaction: alone each would wait for a commit of its own."""
        runs = await self._held(settlements, con)
        found = [(s, LeavingRun(run, _step(s, run))) for s, run in zip(settlements, runs, strict=True) if run is not None]
        if not found:
            return {}
        asked = leave_arguments(self._server.given, [leaving for _, leaving in found], lost=False)
        lanes = {place - 1: lane for place, lane, _ in await con.fetch(self._server.sql["leave"], *asked)}
        gone = [(lanes[n], *each) for n, each in enumerate(found) if n in lanes]
        if held := [(s, to.step.hold) for _, s, to in gone if to.step.hold is not None]:
            await self._following.hold_all(con, held)
        return {(s.id, s.lease): Went(lane, step, run.attempt, run.max_attempts) for lane, s, (run, step) in gone}

    async def _end_other(
        self, settlement: Settlement, lanes: Mapping[Name, int], patience: int, con: asyncpg.Connection
    ) -> dict[Key, Went]:
        """A run that ended otherwise than done, the jobs that follow from it, and what its job waits for then."""
        [run] = await self._held([settlement], con)
        if run is None:
            return {}
        step = _step(settlement, run)
        asked = leave_arguments(self._server.given, [LeavingRun(run, step)], lost=False)
        own = await self._following.batches_of(con, [settlement])
        gone = await con.fetch(self._server.sql["leave"], *asked)
        if not gone:
            return {}
        settlement = structs.replace(settlement, then=followers(settlement, step))
        new = await self._following.follow(con, [settlement], lanes, patience, own)
        if step.hold is not None:
            await self._following.hold(con, settlement, step.hold, new)
        return {(run.id, run.lease): Went(gone[0]["lane"], step, run.attempt, run.max_attempts)}

    async def _refused(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        """What to say of settlements that the fence did not let through."""
        ids = [s.id for s in settlements]
        standing = await standings(self._server, ids)
        lanes = await self._lanes({position.lane for position in standing.values()})
        answers, stale = [], []
        for settlement in settlements:
            stands = standing.get(settlement.id, NOT_THERE)
            if settlement.lease == stands.lease == stands.settled and stands.state != State.RUNNING:
                hold = Held("") if stands.due_in > to_us(MAX_DELAY) else None
                step = Step(State(stands.state), "", stands.due_in / 1_000_000, hold=hold)
                went = Went(stands.lane, step, stands.attempt, stands.max_attempts)
                answers.append(_answer(Settled.REPEATED, lanes[stands.lane], went))
            elif stands is NOT_THERE:
                answers.append(SettleAnswer(Settled.LOST))
                stale.append(NOWHERE)
            else:
                lane = lanes[stands.lane]
                answers.append(SettleAnswer(Settled.LOST, lane.task, lane.queue))
                stale.append(lane.id)
        await count(self._server, stale, "stale")
        if any(answer.said is Settled.REPEATED for answer in answers):
            await self._server.connection("settle").rows(self._server.sql["await_standby"])
        return answers


def _held_alone(settlements: Sequence[Settlement]) -> tuple[list[Settlement], list[Settlement]]:
    """Those that wait for events, and from which no jobs follow; and the others."""
    held: list[Settlement] = []
    others: list[Settlement] = []
    for each in settlements:
        alone = holds(each.outcome) and each.outcome.event is not None and not each.then
        (held if alone else others).append(each)
    return in_lock_order(held), others


def _finished(settlements: Sequence[Settlement], answer: str | None) -> dict[Key, Went]:
    """Those that stood, by what `finish` says. It says nothing when all did and each is known from its claim."""
    if answer is None:
        hints: list[Hint] = [s.hint for s in settlements]
        each = zip(settlements, hints, strict=True)
        return {(s.id, s.lease): Went(lane, _DONE, attempt, attempts) for s, (attempt, attempts, _, lane) in each}
    stood = msgspec.json.decode(answer.removeprefix(WAITED_FOR))
    return {(id, lease): Went(lane, _DONE, attempt, attempts) for id, lease, lane, attempt, attempts in stood}


def _answer(said: Settled, lane: CatalogLane, went: Went) -> SettleAnswer:
    step = went.step
    return SettleAnswer(said, lane.task, lane.queue, step.state, step.due_in, went.attempt, went.max_attempts)


def _step(settlement: Settlement, run: RunningRow) -> Step:
    return follow(settlement.outcome, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=run.cancel_asked)
