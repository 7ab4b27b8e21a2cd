"""Small hashes that several callers ask for at once are read by one script."""

from __future__ import annotations

import asyncio
from typing import Any

from hawser.stores.redis.server import Server


class _JoinedRead:
    """A look that has not been sent."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.said: asyncio.Future[Any]


class JoinedReads:
    """The reads of one process; those of one turn of a loop are joined."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._unsent: dict[asyncio.AbstractEventLoop, _JoinedRead] = {}

    async def of(self, *names: str) -> tuple[int, list[Any]]:
        """The store's time, and the fields of each hash."""
        loop = asyncio.get_running_loop()
        look = self._unsent.get(loop)
        if look is None or look.said.done():
            look = self._unsent[loop] = _JoinedRead()
            look.said = loop.create_task(self._send(loop))
            look.said.add_done_callback(_heard)
        first = len(look.names)
        look.names += names
        now, *hashes = await asyncio.shield(look.said)
        return int(now), hashes[first : first + len(names)]

    async def _send(self, loop: asyncio.AbstractEventLoop) -> Any:
        return await self._server.look("read", *self._unsent.pop(loop).names)


def _heard(said: asyncio.Future[Any]) -> None:
    """Its callers may be gone: then the error is for none of them."""
    if not said.cancelled():
        said.exception()
