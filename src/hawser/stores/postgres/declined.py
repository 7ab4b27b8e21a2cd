"""Jobs that workers declined, in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from hawser.store import Declined, Unaccepted
from hawser.stores.declined import Kept, kept_of, merged
from hawser.stores.postgres.managed_connection import IMPATIENT
from hawser.stores.postgres.server import Server
from hawser.value.ids import is_id


class DeclinedJobs:
    """The notes about them; each call is one transaction."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def decline(self, notes: Sequence[Declined]) -> list[Unaccepted | None]:
        real = [note for note in notes if is_id(note.id)]
        found = (
            await self._server.connection("operate").together(lambda con: self._note(con, real), begin=IMPATIENT) if real else {}
        )
        return [found.get(note.id) for note in notes]

    async def _note(self, con: asyncpg.Connection, notes: Sequence[Declined]) -> dict[str, Unaccepted]:
        sql, given = self._server.sql, self._server.given
        ids = [note.id for note in notes]
        await con.execute(sql["note_declined"], given, ids, [note.lease for note in notes])
        rows = await con.fetch(sql["declined"], given, ids)
        before = {id: kept_of(*kept) for _, id, *kept in rows}
        known: dict[str, Kept] = dict(before)
        for note in notes:
            if note.id in known:
                known[note.id] = merged(known[note.id], note, rows[0][0])
        if changed := {id: kept for id, kept in known.items() if kept != before[id]}:
            columns = ([kept.lease for kept in changed.values()], [kept.since for kept in changed.values()])
            await con.execute(sql["keep_declined"], list(changed), *columns, [kept.text() for kept in changed.values()])
        return {id: kept.answer(rows[0][0]) for id, kept in known.items()}

    async def forget(self) -> None:
        await self._server.connection("operate").rows(self._server.sql["forget_declined"])
