"""A few pages over HTTP for the operator of a worker: metrics, health, readiness. Nothing can be changed here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple

from hawser.errors import ConfigError

_logger = logging.getLogger("hawser.worker")

REQUEST_WITHIN_S: Final = 5.0
"""Seconds that a caller has to say what it wants."""


class Sheet(NamedTuple):
    """What a page answers."""

    status: int
    body: bytes
    media_type: str = "text/plain; charset=utf-8"


_NOT_FOUND: Final = Sheet(404, b"not found\n")
_PHRASES: Final = {
    200: "OK",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Pages:
    """Answers GET on a few paths, one request a connection."""

    def __init__(self, pages: Mapping[str, Callable[[], Awaitable[Sheet]]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port that it became."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=8192)
        except OSError as error:
            raise ConfigError(f"metrics_port: cannot listen on {host}:{port}: {error.strerror}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_WITHIN_S):
                head = await reader.readuntil(b"\r\n\r\n")
            sheet = await self._sheet(head)
            lines = [
                f"HTTP/1.1 {sheet.status} {HTTPStatus(sheet.status).phrase}",
                f"content-type: {sheet.media_type}",
                f"content-length: {len(sheet.body)}",
                "connection: close",
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode() + sheet.body)
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # it said nothing that could be answered
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _sheet(self, head: bytes) -> Sheet:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] != b"GET":
            return Sheet(405, b"only GET\n")
        page = self._pages.get(words[1].partition(b"?")[0].decode("latin-1"))
        if page is None:
            return _NOT_FOUND
        try:
            return await page()
        except Exception:
            _logger.exception("a page of the metrics port failed")
            return Sheet(500, b"failed; see the log\n")
