"""How an answer is sent: whole or as a stream, compressed where the caller takes that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Final

from hawser.api.call import Stream
from hawser.api.encoding import FROM, squeezed, takes_gzip

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Fields = tuple[tuple[bytes, bytes], ...]

PLAIN_HEADERS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


async def watch_for_hang_up(receive: Receive, gone: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


async def encoded(scope: Scope, body: bytes, headers: Fields) -> tuple[bytes, Fields]:
    """The body as the caller can take it, with what is to be said of that."""
    if len(body) < FROM:
        return body, headers
    headers = (*headers, (b"vary", b"accept-encoding"))
    if not takes_gzip(dict(scope["headers"]).get(b"accept-encoding", b"")):
        return body, headers
    return await squeezed(body), (*headers, (b"content-encoding", b"gzip"))


async def send_whole(send: Send, status: int, media_type: bytes, body: bytes, headers: Fields, *, silent: bool = False) -> None:
    length = str(len(body)).encode()
    start = [(b"content-type", media_type), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": b"" if silent else body})


async def send_stream(receive: Receive, send: Send, answer: Stream) -> None:
    """Send until either side has had enough."""
    start = [(b"content-type", answer.media_type.encode()), (b"x-accel-buffering", b"no"), *answer.headers, *PLAIN_HEADERS]

    async def pump() -> None:
        async with aclosing(answer.chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    both: list[asyncio.Future[None]] = []
    try:
        await send({"type": "http.response.start", "status": 200, "headers": start})
        both += [asyncio.ensure_future(pump()), asyncio.ensure_future(watch_for_hang_up(receive, asyncio.Event()))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in both:
            each.cancel()
        answer.close()
        await asyncio.gather(*both, return_exceptions=True)
