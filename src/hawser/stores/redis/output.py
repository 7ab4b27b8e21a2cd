"""The output of jobs, in the Redis store."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.store import MAX_CHUNKS, MAX_OUTPUT, OUTPUT_READ, Chunk, LeaseRef, NewOutput, OutputKept
from hawser.stores.output import chunk_of
from hawser.stores.redis.codec import lease_of, raw, unpack
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument


class Output:
    """What runs write while they run."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def write(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        if not outputs:
            return []
        arguments: list[Argument] = []
        for output in outputs:
            arguments += [lease_of(LeaseRef(output.id, output.lease)), output.attempt, output.first, len(output.chunks)]
            arguments += output.chunks
        answers = await self._server.run("write_output", MAX_OUTPUT, MAX_CHUNKS, *arguments, connection="settle")
        return [OutputKept(*map(int, answer)) if answer else None for answer in answers]

    async def of(self, id: str, after: int = 0, limit: int = OUTPUT_READ) -> list[Chunk]:
        found = await self._server.look("output", raw(id), after, limit)
        chunks = []
        for number, packed in enumerate(found, after + 1):
            _, _, lease, attempt, written_at, body = unpack(packed)
            chunks.append(chunk_of(number, body.encode(), int(written_at), int(lease), attempt))
        return chunks
