"""Wake-ups: PUBLISH in the scripts as a hint, looking again as the guarantee. A message costs no sync."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import suppress
from typing import Final

from hawser.stores.redis.errors import UNREACHED
from hawser.stores.redis.server import Server
from hawser.stores.wakeup import Wakeups

SOONEST: Final = 0.01
LATEST: Final = 5.0
"""Seconds between two looks: at first after there was work, and after a long time without."""

LATEST_DEAF: Final = 0.5
"""As LATEST, while no subscription stands."""

CALM: Final = 0.1
"""Seconds of a wait from which on it pays to ask when the next job is due."""


class Wake:
    """The hints of one process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._bell = Wakeups()
        self._guard = threading.Lock()
        self._listening: dict[int, Listener] = {}
        self._pause = SOONEST

    def ring(self) -> None:
        """Wake the waiters of this process."""
        self._bell.ring()

    def had_work(self) -> None:
        """Look again soon."""
        self._pause = SOONEST

    def next_look(self) -> float:
        """Seconds until the next look, a little different each time, so that workers do not all look at once."""
        heard = any(listener.hears for listener in self._listening.values())
        pause, self._pause = self._pause, min(self._pause * 2, LATEST if heard else LATEST_DEAF)
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
                mine = self._listening[id(loop)] = Listener(self._server, self._bell, loop)
        return mine

    async def close(self) -> None:
        with self._guard:
            self._listening, gone = {}, self._listening
        for listener in gone.values():
            await listener.stop()


class Listener:
    """The connection of one loop that hears messages. When it breaks, it is made again at the next wait."""

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
        with suppress(*UNREACHED):
            con = await self._server.dialer.dial()
            try:
                await con.send_command("SUBSCRIBE", f"{self._server.address.prefix}wake")
                while True:
                    await con.read_response()
                    # The first answer says that we listen: what came before was not heard.
                    self.hears = True
                    self._bell.ring()
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
