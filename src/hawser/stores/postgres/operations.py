"""The operator's actions. Each is one transaction, and leaves its audit record there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar

import asyncpg
import msgspec

from hawser.clock import from_datetime
from hawser.errors import HawserError
from hawser.job import NewJob, State
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import DONE_LATE, ERROR_TOLD, Acted, Actor, LeaseRef, Target, Weight
from hawser.stores.postgres.enqueue_arguments import EnqueueArguments, made_on
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.managed_connection import IMPATIENT
from hawser.stores.postgres.server import Server
from hawser.stores.record import BLANK, about_of, noted
from hawser.value.fingerprint import fingerprint
from hawser.value.ids import is_id

T = TypeVar("T")

NOT_SPREAD: Final[Mapping[str, int]] = MappingProxyType({})

Act = Callable[["Action", Sequence[str]], Awaitable[dict[str, Acted]]]


class OperatorStatements:
    """What an operator does to jobs and queues."""

    def __init__(self, server: Server, catalog: LaneCatalog) -> None:
        self._server = server
        self._catalog = catalog

    async def act(self, name: str, ids: Sequence[str], actor: Actor, do: Act) -> list[Acted]:
        """Do one action to each job, with one audit record. A job that is named twice has changed by the second time."""

        async def work(con: asyncpg.Connection) -> list[Acted]:
            return await self.act_within(con, name, ids, actor, do)

        return await self._server.connection("operate").together(work, begin=IMPATIENT)

    async def act_within(self, con: asyncpg.Connection, name: str, ids: Sequence[str], actor: Actor, do: Act) -> list[Acted]:
        """As `act`, in a transaction that is open."""
        action = Action(self._server, self._catalog, con, actor)
        answers: list[Acted] = [Acted.NOT_FOUND] * len(ids)
        left = list(range(len(ids)))
        while left:
            first: dict[str, int] = {}
            for n in left:
                first.setdefault(ids[n], n)
            said = await do(action, [id for id in first if is_id(id)])
            for id, n in first.items():
                answers[n] = said.get(id) or await action.missing(id)
            left = [n for n in left if n not in first.values()]
        record = noted(ids, answers)
        if record.changed:
            await action.note(name, record.target, record.changed, record.ids)
        return answers

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        async def write() -> Acted:
            name = job.queue, job.task, job.priority
            lane = (await self._catalog.make_for([job], self._server.connection("operate")))[name]
            [answer] = await self.act("replace", [id], actor, lambda action, ids: action.replace(ids, job, lane))
            return answer

        try:
            return await self._catalog.surely(write)
        except KeyTaken:
            return Acted.KEY_TAKEN

    async def end_returned(self, lost: LeaseRef) -> bool:
        async def work(con: asyncpg.Connection) -> bool:
            if await con.fetchval(self._server.sql["returned"], lost.id, lost.lease) is None:
                return False
            await con.fetch(self._server.sql["cancel"], self._server.given, [lost.id], DONE_LATE)
            return True

        return is_id(lost.id) and await self._server.connection("operate").together(work, begin=IMPATIENT)

    async def group_dead(self, limit: int) -> int:
        """Group dead jobs that have no group yet."""

        async def work(con: asyncpg.Connection) -> int:
            rows = await con.fetch(self._server.sql["ungrouped"], BLANK, ERROR_TOLD, limit)
            if rows:
                found = [fingerprint(error) for _, error in rows]
                await con.execute(self._server.sql["group_dead"], [id for id, _ in rows], found)
            return len(rows)

        return await self._server.connection("operate").together(work, begin=IMPATIENT)

    async def pause(self, target: Target, actor: Actor, until: datetime | None) -> None:
        ends = None if until is None else from_datetime(until)
        row = (self._server.given, target.kind, target.name, ends, actor.reason, actor.by)
        await self._control("pause", f"{target.kind}:{target.name}", actor, lambda con, sql: con.fetch(sql["pause"], *row))

    async def resume(self, target: Target, actor: Actor) -> bool:
        asked = (self._server.given, target.kind, target.name)
        return bool(
            await self._control(
                "resume",
                f"{target.kind}:{target.name}",
                actor,
                lambda con, sql: con.fetchval(sql["resume"], *asked),
                unless=False,
            )
        )

    async def note(self, name: str, target: str, actor: Actor) -> None:
        async def work(con: asyncpg.Connection) -> None:
            await self.note_within(con, name, target, 0, actor)

        await self._server.connection("operate").together(work, begin=IMPATIENT)

    async def note_within(self, con: asyncpg.Connection, name: str, target: str, count: int, actor: Actor) -> None:
        """As `note`, in a transaction that is open."""
        await Action(self._server, self._catalog, con, actor).note(name, target, count)

    async def set_weight(self, weight: Weight, actor: Actor) -> None:
        asked = (weight.queue, weight.group) if weight.weight == 1 else (weight.queue, weight.group, weight.weight)
        statement = "clear_weight" if weight.weight == 1 else "set_weight"
        await self._control("set_weight", f"queue:{weight.queue}", actor, lambda con, sql: con.fetch(sql[statement], *asked))

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        text = None if policy == NO_POLICY else msgspec.json.encode(policy).decode()
        row = (queue, text, policy.max_attempts)
        await self._control("set_policy", f"queue:{queue}", actor, lambda con, sql: con.fetch(sql["set_policy"], *row))

    async def _control(
        self,
        name: str,
        target: str,
        actor: Actor,
        do: Callable[[asyncpg.Connection, Mapping[str, str]], Awaitable[T]],
        *,
        unless: object = ...,
    ) -> T:
        """Change a pause or a limit, and tell every claimer by the number that it knows."""

        async def work(con: asyncpg.Connection) -> T:
            answer = await do(con, self._server.sql)
            if unless is ... or answer:
                await Action(self._server, self._catalog, con, actor).note(name, target, 0)
            await con.execute(self._server.sql["changed"])
            return answer

        return await self._server.connection("operate").together(work, begin=IMPATIENT)


class KeyTaken(HawserError):
    """Another job holds the key: take everything back."""


class Action:
    """One action inside its transaction."""

    def __init__(self, server: Server, catalog: LaneCatalog, con: asyncpg.Connection, actor: Actor) -> None:
        self._server = server
        self._catalog = catalog
        self._con = con
        self._actor = actor

    async def rows(self, name: str, *arguments: Any) -> Sequence[Any]:
        rows: Sequence[Any] = await self._con.fetch(self._server.sql[name], *arguments)
        return rows

    async def note(self, name: str, target: str, count: int, ids: tuple[str, ...] = ()) -> None:
        actor = self._actor
        await self.rows("note", self._server.given, actor.by, name, target, count, actor.reason, about_of(actor, ids))

    async def missing(self, id: str) -> Acted:
        """What to say of a job that the action did not find."""
        if not is_id(id):
            return Acted.NOT_FOUND
        elsewhere = await self.rows("elsewhere", [id], made_on([id]), self._server.given)
        return Acted.WRONG_STATE if elsewhere else Acted.NOT_FOUND

    async def cancel(self, ids: Sequence[str]) -> dict[str, Acted]:
        live = {id: running for id, _, running, *_ in await self.rows("live", ids)}
        said = {id: Acted.ASKED if running else Acted.DONE for id, running in live.items()}
        if asked := [id for id, running in live.items() if running]:
            await self.rows("ask_to_cancel", asked, self._actor.reason)
        if ended := [id for id, running in live.items() if not running]:
            await self.rows("cancel", self._server.given, ended, self._actor.reason)
        return said

    async def discard(self, ids: Sequence[str]) -> dict[str, Acted]:
        said = await self._ended(ids, only=State.DEAD)
        if dead := [id for id, answer in said.items() if answer is Acted.DONE]:
            await self.rows("discard", self._server.given, dead, self._actor.reason)
        return said

    async def requeue(self, ids: Sequence[str], later: Mapping[str, int] = NOT_SPREAD) -> dict[str, Acted]:
        """`later`: in how many microseconds each is due."""
        said: dict[str, Acted] = {}
        ended = await self.rows("ended", ids)
        # Locked in the order of ids; keys are taken in the order of the call: who is named first gets the key.
        for id, lane, _, key, _ in sorted(ended, key=lambda row: ids.index(row[0])):
            holds = key is None or await self._hold(key, id, lane)
            said[id] = Acted.DONE if holds else Acted.KEY_TAKEN
        if back := [id for id, answer in said.items() if answer is Acted.DONE]:
            await self.rows("requeue", self._server.given, back, [later.get(id, 0) for id in back])
        return said

    async def rewind(self, ids: Sequence[str], to: str | None) -> dict[str, Acted]:
        """Of one job: requeue it, and forget what was recorded after one of its steps."""
        place = [(0,)] if to is None or not ids else await self.rows("place_of_step", ids[0], to)
        if not place:
            return {ids[0]: Acted.NOT_FOUND}
        said = await self.requeue(ids)
        for id, acted in said.items():
            if acted is Acted.DONE:
                await self.rows("forget_later_steps", id, place[0][0])
        return said

    async def _hold(self, key: str, id: str, lane: int) -> bool:
        place = await self._lane(lane)
        return await self.hold(place.queue, place.task, key, id, lane)

    async def hold(self, queue: str, task: str, key: str, id: str, lane: int) -> bool:
        """Take the key for the job; False when another holds it."""
        [(holder, fresh)] = await self.rows("hold_key", self._server.given, queue, task, key, id, lane)
        if fresh:
            await self.count("@keys", lane, 1)
        return bool(holder == id)

    async def count(self, name: str, lane: int, by: int) -> None:
        await self.rows("count", self._server.given, [lane], [name], [by])

    async def _lane(self, id: int) -> Any:
        view = self._catalog.view
        return view.lanes[id] if id in view.lanes else await self._catalog.lane(id, self._server.connection("read"))

    async def replace(self, ids: Sequence[str], job: NewJob, lane: int) -> dict[str, Acted]:
        said = await self._ended(ids, only=State.DEAD)
        if ids and said.get(ids[0]) is Acted.DONE:
            [(_, _, _, _, batch)] = await self.rows("ended", list(ids))
            job = msgspec.structs.replace(job, batch=batch)
            asked = EnqueueArguments([job], [lane], [ids[0]]).arguments(self._server.given, unlimited=True, wake=[job.queue])
            others = await self.rows("follow", *asked)
            if any(holder != job.id for _, holder in others):
                raise KeyTaken
            await self.rows("wait_instead", ids[0], job.id)
            await self.rows("leave_batch", ids[0])
            await self.rows("stands_in", job.id)
            await self.rows("discard", self._server.given, list(ids), self._actor.reason)
        return said

    async def _ended(self, ids: Sequence[str], only: State) -> dict[str, Acted]:
        """The finished ones, locked: those in the right state, and the others."""
        rows = await self.rows("ended", ids)
        return {id: Acted.DONE if state == only else Acted.WRONG_STATE for id, _, state, *_ in rows}
