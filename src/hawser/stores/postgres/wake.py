"""Wake-ups: NOTIFY as a hint, looking again as the guarantee.

A NOTIFY takes a lock of the whole database at commit and wakes every listener, so a producer sends one per queue at most every
few milliseconds. A worker that has just had work looks again soon, then less and less often.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from hawser.stores.postgres.errors import POSTGRES_UNREACHED
from hawser.stores.postgres.server import Server
from hawser.stores.wakeup import Wakeups

APART: Final = 0.004
"""Seconds between two notifications of one queue by one process."""

POSTGRES_LOOK_AT_FIRST_S: Final = 0.004
POSTGRES_LOOK_AT_LAST_S: Final = 1.0
"""Seconds between two looks: at first after there was work, and after a long time without."""

POSTGRES_LOOK_WHILE_DEAF_S: Final = 0.1
"""As POSTGRES_LOOK_AT_LAST_S, when no notification will come, because LISTEN is not allowed there."""

ASK_FROM_S: Final = 0.1
"""Seconds of a wait from which on it pays to ask when the next job is due."""


class Wake:
    """The hints of one process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._bell = Wakeups()
        self._sent: dict[str, float] = {}
        self._listening: dict[int, Listener] = {}
        self._guard = threading.Lock()
        self._pause = POSTGRES_LOOK_AT_FIRST_S

    def tell(self, queues: set[str]) -> list[str]:
        """Wake the waiters of this process; returns the queues of which other processes are to be notified."""
        self._bell.ring()
        if not self._server.address.listen:
            return []
        now = time.monotonic()
        told = [queue for queue in queues if now - self._sent.get(queue, 0.0) >= APART]
        self._sent.update(dict.fromkeys(told, now))
        return told

    def had_work(self) -> None:
        """Look again soon."""
        self._pause = POSTGRES_LOOK_AT_FIRST_S

    def next_look(self) -> float:
        """Seconds until the next look, a little different each time, so that workers do not all look at once."""
        heard = any(listener.hears for listener in self._listening.values())
        pause, self._pause = self._pause, min(self._pause * 2, POSTGRES_LOOK_AT_LAST_S if heard else POSTGRES_LOOK_WHILE_DEAF_S)
        return pause * random.uniform(0.75, 1.25)

    @contextmanager
    def listening(self) -> Iterator[asyncio.Future[None]]:
        """What is done when a notification comes, from the begin of the block on."""
        waiter = self._bell.join()
        try:
            if self._server.address.listen and not self._server.address.pooled:
                self._listener().keep_listening()
            yield waiter
        finally:
            self._bell.leave(waiter)

    def _listener(self) -> Listener:
        loop = asyncio.get_running_loop()
        with self._guard:
            mine = self._listening.get(id(loop))
            if mine is None or mine.loop is not loop:
                mine = self._listening[id(loop)] = Listener(self._server, self._bell, loop)
        return mine

    async def close(self) -> None:
        with self._guard:
            self._listening, gone = {}, self._listening
        for listener in gone.values():
            listener.stop()


class Listener:
    """The connection of one loop that hears other processes. When it breaks, it is made again at the next wait."""

    def __init__(self, server: Server, bell: Wakeups, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.hears = False
        self._server = server
        self._bell = bell
        self._task: asyncio.Task[None] | None = None
        self._tried = -1.0

    def keep_listening(self) -> None:
        if (self._task is None or self._task.done()) and time.monotonic() - self._tried > 1:
            self._tried = time.monotonic()
            self._task = self.loop.create_task(self._listen())

    async def _listen(self) -> None:
        with suppress(*POSTGRES_UNREACHED):
            con = await self._server.dial()
            ended = asyncio.Event()
            con.add_termination_listener(lambda _: ended.set())
            try:
                await con.add_listener(f"{self._server.address.schema}.wake", self._rung)
                self.hears = True
                # What came before we listened was not heard.
                self._bell.ring()
                await ended.wait()
            finally:
                self.hears = False
                if not con.is_closed():
                    con.terminate()

    def _rung(self, *_: Any) -> None:
        self._bell.ring()

    def stop(self) -> None:
        if self._task is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._task.cancel)
