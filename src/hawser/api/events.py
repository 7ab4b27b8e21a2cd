"""`/events`: hints that something changed, so that a screen asks again only for what did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hawser.api.call import Call, NoBody, NoQuery, Stream
from hawser.api.identity import Identity
from hawser.api.problem import Problem
from hawser.errors import StoreError

if TYPE_CHECKING:
    from hawser.store import Store

EVERY: Final = 0.5
"""Seconds between two looks: a client gets at most two hints a second."""

COMMENT_EVERY: Final = 15.0
"""Seconds after which a stream that has nothing to say shows that it lives; proxies cut silent ones."""

MAX_STREAMS: Final = 1_000
"""Of all callers together."""

MAX_PER_KEY: Final = 50
"""So that one key cannot take them all. Callers without a key are not told apart: the application knows them, or they are our own
user."""

RETRY_AFTER: Final = "5"
LASTS: Final = 600.0
"""Seconds after which a stream ends. The reader comes again at once."""

Admit = Callable[[Identity, "Store"], Awaitable[None]]
"""Raises a `Problem` when the caller is no longer admitted."""


async def events(call: Call[NoBody, NoQuery]) -> Stream:
    """A stream of hints about what changed: jobs, queues, workers, controls."""
    pulse = call.api.pulse
    listener = pulse.enter(call.identity)
    return Stream(pulse.listen(call.store, listener), lambda: pulse.leave(listener))


class StreamListener:
    """An open stream."""

    __slots__ = ("identity", "refused")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.refused = False
        """Its key is no longer good."""


class Pulse:
    """Looks at the store for all streams together, and only while there are any. Looks at their keys, too."""

    def __init__(
        self, stopping: asyncio.Event, admit: Admit, every: float = EVERY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listeners: set[StreamListener] = set()
        self._stopping = stopping
        self._admit = admit
        self._every = every
        self._clock = clock
        self._number = 0
        self._news = asyncio.Condition()
        self._changed: dict[str, int] = {}
        """What changed, and the number of the look that saw it."""
        self._last: dict[str, Hashable] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def enter(self, identity: Identity) -> StreamListener:
        """Count a stream, from before its first chunk on: of many that come at once none is overlooked.

        A `Problem` (429, 503) when there are too many."""
        if identity.keyed and sum(one.identity.id == identity.id for one in self._listeners) >= MAX_PER_KEY:
            text = f"key {identity.id} has {MAX_PER_KEY} streams open already; close one, or poll instead"
            raise Problem(429, text, headers={"retry-after": RETRY_AFTER})
        if len(self._listeners) >= MAX_STREAMS:
            text = f"{MAX_STREAMS:,} streams are open already; poll instead"
            raise Problem(503, text, headers={"retry-after": RETRY_AFTER})
        listener = StreamListener(identity)
        self._listeners.add(listener)
        return listener

    def leave(self, listener: StreamListener) -> None:
        self._listeners.discard(listener)

    async def listen(self, store: Store, listener: StreamListener) -> AsyncGenerator[bytes]:
        """Chunks of a stream, from now on."""
        if self._looking is None or self._looking.done():
            self._last = {}
            self._looking = asyncio.get_running_loop().create_task(self._look_on(store), name="hawser-pulse")
        seen, end = self._number, self._clock() + LASTS
        try:
            yield b"retry: 3000\n\n"
            while self._clock() < end:
                told = await self._wait(seen, listener)
                if self._stopping.is_set() or listener.refused:
                    return
                if told:
                    about = sorted(what for what, number in self._changed.items() if number > seen)
                    seen = self._number
                    yield b"id: %d\nevent: change\ndata: %s\n\n" % (seen, msgspec.json.encode({"changed": about}))
                else:
                    yield b": alive\n\n"
        finally:
            self.leave(listener)

    async def _wait(self, seen: int, listener: StreamListener) -> bool:
        try:
            async with asyncio.timeout(COMMENT_EVERY), self._news:
                await self._news.wait_for(lambda: self._number > seen or listener.refused or self._stopping.is_set())
        except TimeoutError:
            return False
        return self._number > seen

    async def _look_on(self, store: Store) -> None:
        while self._listeners and not self._stopping.is_set():
            await self._look_at_keys(store)
            await self.look(store)
            await asyncio.sleep(self._every)
        # A stream that comes from now on starts a look of its own.
        self._looking = None
        async with self._news:
            self._news.notify_all()

    async def _look_at_keys(self, store: Store) -> None:
        for listener in tuple(self._listeners):
            try:
                await self._admit(listener.identity, store)
            except Problem:
                listener.refused = True
                async with self._news:
                    self._news.notify_all()
            except StoreError:
                # Without a store there is nothing to tell, either.
                return

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
        "controls": (
            tuple(pauses),
            tuple((use.target, use.limit, use.set) for use in limits),
            tuple((each.task, each.open, each.revision) for each in await store.breakers()),
        ),
    }


def _places(stats: Any) -> tuple[int, ...]:
    return (
        stats.ready + stats.scheduled,
        stats.held,
        stats.retrying,
        stats.due,
        stats.running,
        stats.done,
        stats.dead,
        stats.cancelled,
    )
