"""Something that jobs depend on and that can be switched off: a service on loopback that answers, or refuses."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from typing import Final, Self

ADDRESS: Final = "HAWSER_LAB_DEPENDENCY"
"""The environment variable that names its port to the workers."""


class Dependency:
    """Runs in a thread of the experiment. Use as a context manager."""

    def __init__(self) -> None:
        self._socket = _listening(0)
        self.port = int(self._socket.getsockname()[1])
        self.asked = 0
        self._thread = threading.Thread(target=self._serve, daemon=True, name="dependency")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """From now on connections are refused."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def up(self) -> None:
        self._socket = _listening(self.port)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="dependency")
        self._thread.start()

    def _serve(self) -> None:
        mine = self._socket
        while True:
            try:
                caller, _ = mine.accept()
            except OSError:
                return
            self.asked += 1
            with caller, suppress(OSError):
                caller.sendall(b"ok")


def _listening(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", port))
    found.listen(1024)
    return found


async def call() -> None:
    """Ask the dependency; raises ConnectionError when it is down. Without one, it is up."""
    port = os.environ.get(ADDRESS)
    if port is None:
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    try:
        if await reader.read(2) != b"ok":
            raise ConnectionError("the dependency hung up")
    finally:
        writer.close()
