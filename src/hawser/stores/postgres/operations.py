"""The operator's actions. Each is one transaction, and leaves its audit record there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import asyncpg
import msgspec

from hawser.clock import from_datetime
from hawser.errors import HawserError
from hawser.ids import is_id
from hawser.job import NewJob, State
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import Acted, Limits, Signature, Target
from hawser.stores.postgres.batch import Batch, made_on
from hawser.stores.postgres.directory import Directory
from hawser.stores.postgres.line import IMPATIENT
from hawser.stores.postgres.server import Server

T = TypeVar("T")

Act = Callable[["Action", Sequence[str]], Awaitable[dict[str, Acted]]]


class Operations:
    """What an operator does to jobs and queues."""

    def __init__(self, server: Server, directory: Directory) -> None:
        self._server = server
        self._directory = directory

    async def act(self, name: str, ids: Sequence[str], sign: Signature, do: Act) -> list[Acted]:
        """Do one thing to each job, and say so once. A job that is named twice has changed by the second time."""

        async def work(con: asyncpg.Connection) -> list[Acted]:
            action = Action(self._server, self._directory, con, sign)
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
            changed = sum(answer in (Acted.DONE, Acted.ASKED) for answer in answers)
            if changed:
                await action.note(name, ids[0] if len(ids) == 1 else "jobs", changed)
            return answers

        return await self._server.line("operate").together(work, begin=IMPATIENT)

    async def replace(self, id: str, job: NewJob, sign: Signature) -> Acted:
        async def write() -> Acted:
            name = job.queue, job.task, job.priority
            lane = (await self._directory.make([name], self._server.line("operate")))[name]
            [answer] = await self.act("replace", [id], sign, lambda action, ids: action.replace(ids, job, lane))
            return answer

        try:
            return await self._directory.surely(write)
        except KeyTaken:
            return Acted.KEY_TAKEN

    async def pause(self, target: Target, sign: Signature, until: datetime | None) -> None:
        ends = None if until is None else from_datetime(until)
        row = (self._server.given, target.kind, target.name, ends, sign.reason, sign.by)
        await self._control("pause", f"{target.kind}:{target.name}", sign, lambda con, sql: con.fetch(sql["pause"], *row))

    async def resume(self, target: Target, sign: Signature) -> bool:
        asked = (self._server.given, target.kind, target.name)
        return bool(
            await self._control(
                "resume", f"{target.kind}:{target.name}", sign, lambda con, sql: con.fetchval(sql["resume"], *asked), unless=False
            )
        )

    async def set_limits(self, queue: str, limits: Limits, sign: Signature) -> None:
        row = (queue, limits.max_depth)
        await self._control("set_limits", f"queue:{queue}", sign, lambda con, sql: con.fetch(sql["set_limits"], *row))

    async def set_policy(self, queue: str, policy: QueuePolicy, sign: Signature) -> None:
        text = None if policy == NO_POLICY else msgspec.json.encode(policy).decode()
        row = (queue, text, policy.max_attempts)
        await self._control("set_policy", f"queue:{queue}", sign, lambda con, sql: con.fetch(sql["set_policy"], *row))

    async def _control(
        self,
        name: str,
        target: str,
        sign: Signature,
        do: Callable[[asyncpg.Connection, Mapping[str, str]], Awaitable[T]],
        *,
        unless: object = ...,
    ) -> T:
        """Change a pause or a limit, and tell every claimer by the number that it knows."""

        async def work(con: asyncpg.Connection) -> T:
            answer = await do(con, self._server.sql)
            if unless is ... or answer:
                await Action(self._server, self._directory, con, sign).note(name, target, 0)
            await con.execute(self._server.sql["changed"])
            return answer

        return await self._server.line("operate").together(work, begin=IMPATIENT)


class KeyTaken(HawserError):
    """Another job holds the key: take everything back."""


class Action:
    """One action inside its transaction."""

    def __init__(self, server: Server, directory: Directory, con: asyncpg.Connection, sign: Signature) -> None:
        self._server = server
        self._directory = directory
        self._con = con
        self._sign = sign

    async def _rows(self, name: str, *arguments: Any) -> Sequence[Any]:
        rows: Sequence[Any] = await self._con.fetch(self._server.sql[name], *arguments)
        return rows

    async def note(self, name: str, target: str, count: int) -> None:
        await self._rows("note", self._server.given, self._sign.by, name, target, count, self._sign.reason)

    async def missing(self, id: str) -> Acted:
        """What to say of a job that the action did not find."""
        if not is_id(id):
            return Acted.NOT_FOUND
        elsewhere = await self._rows("elsewhere", [id], made_on([id]), self._server.given)
        return Acted.WRONG_STATE if elsewhere else Acted.NOT_FOUND

    async def cancel(self, ids: Sequence[str]) -> dict[str, Acted]:
        live = {id: running for id, _, running, *_ in await self._rows("live", ids)}
        said = {id: Acted.ASKED if running else Acted.DONE for id, running in live.items()}
        if asked := [id for id, running in live.items() if running]:
            await self._rows("ask_to_cancel", asked, self._sign.reason)
        if ended := [id for id, running in live.items() if not running]:
            await self._rows("cancel", self._server.given, ended, self._sign.reason)
        return said

    async def discard(self, ids: Sequence[str]) -> dict[str, Acted]:
        said = await self._ended(ids, only=State.DEAD)
        if dead := [id for id, answer in said.items() if answer is Acted.DONE]:
            await self._rows("discard", self._server.given, dead, self._sign.reason)
        return said

    async def requeue(self, ids: Sequence[str]) -> dict[str, Acted]:
        said: dict[str, Acted] = {}
        ended = await self._rows("ended", ids)
        # Locked in the order of ids; keys are taken in the order of the call: who is named first gets the key.
        for id, lane, _, key, key_ttl in sorted(ended, key=lambda row: ids.index(row[0])):
            holds = key is None or key_ttl or await self._hold(key, id, lane)
            said[id] = Acted.DONE if holds else Acted.KEY_TAKEN
        if back := [id for id, answer in said.items() if answer is Acted.DONE]:
            await self._rows("requeue", self._server.given, back)
        return said

    async def _hold(self, key: str, id: str, lane: int) -> bool:
        """Take the key for the job; False when another holds it."""
        queue = (await self._lane(lane)).queue
        [(holder, fresh)] = await self._rows("hold_key", self._server.given, queue, key, id, lane)
        if fresh:
            await self._rows("count", self._server.given, [lane], ["@keys"], [1])
        return bool(holder == id)

    async def _lane(self, id: int) -> Any:
        view = self._directory.view
        return view.lanes[id] if id in view.lanes else await self._directory.lane(id, self._server.line("read"))

    async def replace(self, ids: Sequence[str], job: NewJob, lane: int) -> dict[str, Acted]:
        said = await self._ended(ids, only=State.DEAD)
        if ids and said.get(ids[0]) is Acted.DONE:
            asked = Batch([job], [lane], [ids[0]]).arguments(self._server.given, unlimited=True, wake=[job.queue])
            others = await self._rows("enqueue", *asked)
            if any(holder != job.id for _, holder in others):
                raise KeyTaken
            await self._rows("discard", self._server.given, list(ids), self._sign.reason)
        return said

    async def _ended(self, ids: Sequence[str], only: State) -> dict[str, Acted]:
        """The finished ones, locked: those in the right state, and the others."""
        rows = await self._rows("ended", ids)
        return {id: Acted.DONE if state == only else Acted.WRONG_STATE for id, _, state, *_ in rows}
