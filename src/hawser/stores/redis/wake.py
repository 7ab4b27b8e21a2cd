"""Wake-ups: PUBLISH in the scripts as a hint, looking again as the guarantee. A message costs no sync."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from hawser.stores.redis.errors import REDIS_UNREACHED
from hawser.stores.redis.server import Server
from hawser.stores.wakeup import Wakeups

REDIS_LOOK_AT_FIRST_S: Final = 0.01
REDIS_LOOK_AT_LAST_S: Final = 10.0
"""Seconds between two looks: at first after there was work, and after a long time without."""

REDIS_LOOK_WHILE_DEAF_S: Final = 0.5
"""As REDIS_LOOK_AT_LAST_S, while no subscription stands."""

ASK_FROM_S: Final = 0.1
"""Seconds of a wait from which on it pays to ask when the next job is due."""


class Wake:
    """The hints of one process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._bell = Wakeups()
        self._guard = threading.Lock()
        self._listening: dict[int, Listener] = {}
        self._pause = REDIS_LOOK_AT_FIRST_S
        self.changes = 0
        """Counts what this process has heard or changed itself."""
        self._empty: tuple[frozenset[str], int] = (frozenset(), -1)

    def ring(self) -> None:
        """Wake the waiters of this process."""
        self.changes += 1
        self._bell.ring()

    def had_work(self) -> None:
        """Look again soon."""
        self.changes += 1
        self._pause = REDIS_LOOK_AT_FIRST_S

    def found_empty(self, queues: Iterable[str], changes: int) -> None:
        """A claim has found no job in these queues, not even one that is due later; `changes` as it was before the claim."""
        self._empty = (frozenset(queues), changes)

    def knows_empty(self, queues: Iterable[str]) -> bool:
        """Whether no job came to these queues since: nothing was heard, and this loop hears."""
        empty, changes = self._empty
        return changes == self.changes and self.listens() and empty.issuperset(queues)

    def heard(self, channel: bytes) -> None:
        """A message came, or a subscription was made: what came before was not heard."""
        if channel.endswith(b":wake"):
            self.ring()
        else:
            self.changes += 1

    def listens(self) -> bool:
        """Whether this loop hears of changes; from now on it will."""
        listener = self._listener()
        listener.keep_listening()
        return listener.hears

    def next_look(self) -> float:
        """Seconds until the next look, a little different each time, so that workers do not all look at once."""
        heard = any(listener.hears for listener in self._listening.values())
        pause, self._pause = self._pause, min(self._pause * 2, REDIS_LOOK_AT_LAST_S if heard else REDIS_LOOK_WHILE_DEAF_S)
        return pause * random.uniform(0.75, 1.25)

    def join(self) -> asyncio.Future[None]:
        """Start to listen; followed by one `leave`."""
        self._listener().keep_listening()
        return self._bell.join()

    def leave(self, waiter: asyncio.Future[None]) -> None:
        self._bell.leave(waiter)

    def _listener(self) -> Listener:
        loop = asyncio.get_running_loop()
        with self._guard:
            mine = self._listening.get(id(loop))
            if mine is None or mine.loop is not loop:
                mine = self._listening[id(loop)] = Listener(self._server, self.heard, loop)
        return mine

    async def close(self) -> None:
        with self._guard:
            self._listening, gone = {}, self._listening
        for listener in gone.values():
            await listener.stop()


class Listener:
    """The connection of one loop that hears other processes. When it breaks, it is made again at the next wait."""

    def __init__(self, server: Server, heard: Callable[[bytes], None], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.hears = False
        self._server = server
        self._heard = heard
        self._task: asyncio.Task[None] | None = None
        self._tried = -1.0

    def keep_listening(self) -> None:
        if (self._task is None or self._task.done()) and time.monotonic() - self._tried > 1:
            self._tried = time.monotonic()
            self._task = self.loop.create_task(self._listen())

    async def _listen(self) -> None:
        with suppress(*REDIS_UNREACHED):
            con = await self._server.dialer.dial()
            try:
                prefix = self._server.address.prefix
                await con.send_command("SUBSCRIBE", f"{prefix}upkeep", f"{prefix}wake")
                while True:
                    _, channel, _ = await con.read_response()
                    self._heard(channel)
                    # Confirmed in their order: with the last channel it hears of all.
                    self.hears = self.hears or channel.endswith(b":wake")
            finally:
                self.hears = False
                await con.disconnect(nowait=True)

    async def stop(self) -> None:
        task = self._task
        if task is None or self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(task.cancel)
        if self.loop is asyncio.get_running_loop():
            await asyncio.wait((task,))
