"""`/events`: hints that something changed, so that a screen asks again only for what did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hawser.api.call import Call, NoBody, NoQuery, Stream
from hawser.api.problem import Problem
from hawser.errors import StoreError

if TYPE_CHECKING:
    from hawser.store import Store

EVERY: Final = 0.5
"""Seconds between two looks: nobody gets more than two hints a second."""

COMMENT_EVERY: Final = 15.0
"""Seconds after which a stream that has nothing to say shows that it lives; proxies cut silent ones."""

MAX_STREAMS: Final = 1_000
LASTS: Final = 600.0
"""Seconds after which a stream ends. The reader comes again at once, and its key is looked at again."""


async def events(call: Call[NoBody, NoQuery]) -> Stream:
    """A stream of hints about what changed: jobs, queues, workers, controls."""
    if call.api.pulse.listeners >= MAX_STREAMS:
        raise Problem(503, f"{MAX_STREAMS} streams are open already; poll instead", headers={"retry-after": "5"})
    return Stream(call.api.pulse.listen(call.store))


class Pulse:
    """Looks at the store for all streams together, and only while there are any."""

    def __init__(self, stopping: asyncio.Event, every: float = EVERY, clock: Callable[[], float] = time.monotonic) -> None:
        self.listeners = 0
        self._stopping = stopping
        self._every = every
        self._clock = clock
        self._number = 0
        self._news = asyncio.Condition()
        self._changed: dict[str, int] = {}
        """What changed, and the number of the look that saw it."""
        self._last: dict[str, Hashable] = {}
        self._looking: asyncio.Task[None] | None = None

    async def listen(self, store: Store) -> AsyncGenerator[bytes]:
        """Chunks of a stream, from now on."""
        self.listeners += 1
        if self._looking is None or self._looking.done():
            self._last = {}
            self._looking = asyncio.get_running_loop().create_task(self._look_on(store), name="hawser-pulse")
        seen, end = self._number, self._clock() + LASTS
        try:
            yield b"retry: 3000\n\n"
            while not self._stopping.is_set() and self._clock() < end:
                if await self._wait(seen):
                    about = sorted(what for what, number in self._changed.items() if number > seen)
                    seen = self._number
                    yield b"id: %d\nevent: change\ndata: %s\n\n" % (seen, msgspec.json.encode({"changed": about}))
                else:
                    yield b": alive\n\n"
        finally:
            self.listeners -= 1

    async def _wait(self, seen: int) -> bool:
        try:
            async with asyncio.timeout(COMMENT_EVERY), self._news:
                await self._news.wait_for(lambda: self._number > seen or self._stopping.is_set())
        except TimeoutError:
            return False
        return self._number > seen

    async def _look_on(self, store: Store) -> None:
        while self.listeners and not self._stopping.is_set():
            await self.look(store)
            await asyncio.sleep(self._every)
        async with self._news:
            self._news.notify_all()

    async def look(self, store: Store) -> None:
        """One look; wakes the streams when it sees a change."""
        try:
            now = await _figures(store)
        except StoreError:
            return
        changed = [what for what, figures in now.items() if self._last and self._last.get(what) != figures]
        self._last = now
        if changed:
            async with self._news:
                self._number += 1
                self._changed.update(dict.fromkeys(changed, self._number))
                self._news.notify_all()


async def _figures(store: Store) -> dict[str, Hashable]:
    """What a change shows in. Ages and rates move by themselves and do not count."""
    queues = await store.queues()
    places = {queue: _places(stats) for queue, stats in queues.items()}
    pauses, limits = await store.pauses(), await store.limits()
    return {
        "queues": tuple(sorted(places.items())),
        "workers": tuple(sorted((seen.beat.worker, seen.beat.running, seen.beat.draining) for seen in await store.workers())),
        "controls": (tuple(pauses), tuple(sorted((queue, limit.max_depth or -1) for queue, limit in limits.items()))),
    }


def _places(stats: Any) -> tuple[int, ...]:
    return (stats.ready + stats.scheduled, stats.retrying, stats.due, stats.running, stats.done, stats.dead, stats.cancelled)
