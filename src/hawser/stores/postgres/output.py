"""The output of jobs, in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from hawser.store import Chunk, NewOutput, OutputKept
from hawser.stores.output import LastChunk, appended, chunk_of, kept_of
from hawser.stores.postgres.server import Server
from hawser.value.ids import is_id


class OutputStatements:
    """What runs write while they run."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def write(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        known = [output for output in outputs if is_id(output.id)]
        if not known:
            return [None] * len(outputs)

        async def work(con: asyncpg.Connection) -> list[OutputKept | None]:
            return await self._write(con, known, outputs)

        return await self._server.connection("steps").together(work)

    async def _write(
        self, con: asyncpg.Connection, known: Sequence[NewOutput], outputs: Sequence[NewOutput]
    ) -> list[OutputKept | None]:
        """Each behind what its job has. One run may stand in a call several times."""
        sql, given = self._server.sql, self._server.given
        asked = [output.id for output in known], [output.lease for output in known]
        held = {(str(id), lease): now for id, lease, now in await con.fetch(sql["hold_writers"], given, *asked)}
        found = await con.fetch(sql["last_chunks"], list({id for id, _ in held})) if held else ()
        last = {str(id): LastChunk(*rest) for id, *rest in found}
        rows: list[tuple[Any, ...]] = []
        answers: list[OutputKept | None] = []
        for output in outputs:
            now = held.get((output.id, output.lease))
            if now is None:
                answers.append(None)
                continue
            behind = last.get(output.id, LastChunk())
            for kept in appended(behind, output):
                behind = kept.last
                rows.append((output.id, *behind, output.attempt, now, kept.body))
            last[output.id] = behind
            answers.append(kept_of(behind, output.lease))
        if rows:
            await con.execute(sql["add_chunks"], *(list(column) for column in zip(*rows, strict=True)))
        return answers

    async def of(self, id: str, after: int, limit: int) -> list[Chunk]:
        if not is_id(id):
            return []
        rows = await self._server.connection("read").rows(self._server.sql["output"], id, after, limit, writing=False)
        return [chunk_of(*row) for row in rows]
