"""The requests that callers may repeat. Each is kept in the transaction that adds its jobs: none is there without the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import asyncpg

from hawser.clock import to_us
from hawser.errors import RequestConflict, StoreUnavailable
from hawser.job import NewJob
from hawser.store import REQUEST_KEPT, Enqueued, RequestKey
from hawser.stores.postgres.enqueue_arguments import made_on
from hawser.stores.postgres.managed_connection import BEGIN, ManagedConnection
from hawser.stores.postgres.server import Server

REQUEST_LOOK_EVERY_US: Final = to_us(3_600)
"""Between two looks at a request whose jobs outlive it."""

_TRIES: Final = 3


async def once(
    server: Server,
    connection: ManagedConnection,
    request: RequestKey,
    patience: int,
    add: Callable[[asyncpg.Connection], Awaitable[list[Enqueued]]],
) -> list[Enqueued]:
    """Add the jobs of a request, or answer as the first time. Waits up to so many ms for a transaction that is about to do the
    same."""

    async def work(con: asyncpg.Connection) -> list[Enqueued]:
        name = request.caller, request.key
        for _ in range(_TRIES):
            if await con.fetchval(server.sql["claim_request"], server.given, *name, request.digest, to_us(REQUEST_KEPT)):
                answers = await add(con)
                ids = [answer.id for answer in answers]
                await con.execute(server.sql["remember_request"], server.given, *name, ids, made_on(ids))
                return answers
            if found := await con.fetchrow(server.sql["recall_request"], *name):
                if found[0] != request.digest:
                    raise RequestConflict(request.key)
                return [Enqueued(id, created=False) for id in found[1]]
        raise StoreUnavailable("the request was forgotten meanwhile, again and again; nothing was written: try again")

    return await connection.together(work, begin=f"{BEGIN}; set local lock_timeout = '{patience}ms'")


async def made(server: Server, jobs: Sequence[NewJob], request: RequestKey | None) -> bool:
    """Whether the request, or every one of the jobs, is known."""
    connection, sql, given = server.connection("read"), server.sql, server.given
    if request is not None and await connection.value(sql["knows_request"], given, request.caller, request.key, writing=False):
        return True
    ids = list({job.id for job in jobs})
    rows = await connection.rows(sql["known_jobs"], given, ids, made_on(ids), writing=False)
    return len({row[0] for row in rows}) == len(ids)


async def forget(server: Server, connection: ManagedConnection, limit: int) -> None:
    """Let go of some that are over."""
    await connection.rows(server.sql["forget_requests"], server.given, limit, REQUEST_LOOK_EVERY_US)
