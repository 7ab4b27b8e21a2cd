"""`/events`: hints that something changed, so that a screen asks again only for what did."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hawser.api.call import Call, NoBody, NoQuery, Stream
from hawser.api.diagnosis import BEHIND_AFTER_S, FAR_BEHIND
from hawser.api.identity import Identity
from hawser.api.problem import Problem
from hawser.client.explain import is_alive
from hawser.clock import Clock, at
from hawser.errors import StoreError
from hawser.store import QueueStats

if TYPE_CHECKING:
    from hawser.store import Store

HINTS_EVERY_S: Final = 0.5
"""Seconds between two looks: a client gets at most two hints a second."""

SELDOM_EVERY: Final = 4
"""Looks after which schedules and operations on many jobs are looked at again: they change by hand, and each costs a read."""

SCHEDULES_SEEN: Final = 50
"""Those whose ticks come first, which are the ones that screens show."""

EVERYTHING: Final = ("controls", "operations", "queues", "schedules", "workers")
"""All kinds of things that may change, but for whether the store answers."""

ALIVE_EVERY_S: Final = 5.0
"""Seconds after which a stream that has nothing to say tells that it lives, as an event: a reader that hears nothing for much
longer knows that it is cut off, and proxies cut silent streams."""

LOOK_WITHIN_S: Final = 5.0
"""Seconds after which a look that has no answer counts as one that the store refused."""

MAX_STREAMS: Final = 1_000
"""Of all callers together."""

MAX_PER_KEY: Final = 50
"""So that one key cannot take them all. Callers without a key are not told apart: the application knows them, or they are our own
user."""

RETRY_AFTER: Final = "5"
STREAM_LASTS_S: Final = 600.0
"""Seconds after which a stream ends. The reader comes again at once."""

Admit = Callable[[Identity, "Store"], Awaitable[None]]
"""Raises a `Problem` when the caller is no longer admitted."""


async def events(call: Call[NoBody, NoQuery]) -> Stream:
    """A stream of hints about what changed: queues, workers, controls, schedules, operations, or whether the store answers."""
    pulse = call.api.pulse
    listener = pulse.enter(call.identity)
    behind = call.headers.get(b"last-event-id")
    return Stream(pulse.listen(call.store, listener, behind), lambda: pulse.leave(listener))


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
        self,
        stopping: asyncio.Event,
        admit: Admit,
        wall: Clock,
        every: float = HINTS_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listeners: set[StreamListener] = set()
        self._stopping = stopping
        self._admit = admit
        self._wall = wall
        self._every = every
        self._clock = clock
        self._number = 0
        self._server = secrets.token_hex(4).encode()
        """Stands in ids: the numbers of another server are not ours."""
        self._looks = 0
        self._news = asyncio.Condition()
        self._changed: dict[str, int] = {}
        """What changed, and the number of the look that saw it."""
        self._queues: dict[str, int] = {}
        """The same of each queue; those that are gone are forgotten with the last stream."""
        self._last: dict[str, Hashable] = {}
        self._away = False
        """The store did not answer the last look."""
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

    async def listen(self, store: Store, listener: StreamListener, behind: bytes | None = None) -> AsyncGenerator[bytes]:
        """Chunks of a stream, from now on. A reader that was here before says the id behind which it goes on."""
        before = self._known(behind)
        if self._looking is None or self._looking.done():
            self._last, self._queues = {}, {}
            self._looking = asyncio.get_running_loop().create_task(self._look_on(store), name="hawser-pulse")
        seen, end = self._number if before is None else before, self._clock() + STREAM_LASTS_S
        try:
            yield b"retry: 3000\n\n"
            if behind is not None and before is None:
                yield self._change(seen, {"changed": EVERYTHING, "queues": ()})
            while self._clock() < end:
                told = await self._wait(seen, listener)
                if self._stopping.is_set() or listener.refused:
                    return
                if told:
                    data = self._since(seen)
                    seen = self._number
                    yield self._change(seen, data)
                else:
                    yield b"event: alive\ndata: {}\n\n"
        finally:
            self.leave(listener)

    def _known(self, behind: bytes | None) -> int | None:
        """The number behind which a reader goes on; None when looks were missed since, or were another server's."""
        server, _, number = (behind or b"").partition(b"-")
        if self._looking is None or self._looking.done() or server != self._server or not number.isdigit() or len(number) > 15:
            return None
        return int(number)

    def _change(self, number: int, data: Mapping[str, Sequence[str]]) -> bytes:
        return b"id: %s-%d\nevent: change\ndata: %s\n\n" % (self._server, number, msgspec.json.encode(data))

    def _since(self, seen: int) -> dict[str, list[str]]:
        """What changed since a look: the kinds of things, and the queues by name."""
        return {
            "changed": sorted(what for what, number in self._changed.items() if number > seen),
            "queues": sorted(queue for queue, number in self._queues.items() if number > seen),
        }

    async def _wait(self, seen: int, listener: StreamListener) -> bool:
        try:
            async with asyncio.timeout(ALIVE_EVERY_S), self._news:
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
            async with asyncio.timeout(LOOK_WITHIN_S):
                now = await _figures(store, at(self._wall.now()))
                seldom = await _seldom(store) if self._looks % SELDOM_EVERY == 0 else {}
        except (StoreError, TimeoutError):
            if not self._away:
                self._away = True
                await self._tell(["store"])
            return
        self._looks += 1
        before = self._last
        now = {**{what: before[what] for what in ("schedules", "operations") if what in before}, **now, **seldom}
        changed = [what for what, figures in now.items() if what in before and before[what] != figures]
        self._last = now
        if "queues" in changed:
            self._queues.update(dict.fromkeys(_different(before["queues"], now["queues"]), self._number + 1))
        if self._away:
            self._away = False
            changed.append("store")
        if changed:
            await self._tell(changed)

    async def _tell(self, changed: Sequence[str]) -> None:
        async with self._news:
            self._number += 1
            self._changed.update(dict.fromkeys(changed, self._number))
            self._news.notify_all()


async def _figures(store: Store, now: datetime) -> dict[str, Hashable]:
    """What a change shows in. Ages and rates move by themselves; they count when they make how things stand better or worse."""
    queues = await store.queues()
    places = {queue: (*_places(stats), _lateness(stats)) for queue, stats in queues.items()}
    pauses, limits = await store.pauses(), await store.limits()
    workers = [(seen.beat, is_alive(seen, now)) for seen in await store.workers()]
    return {
        "queues": tuple(sorted(places.items())),
        "workers": tuple(sorted((beat.worker, beat.running, beat.draining, beat.stuck, alive) for beat, alive in workers)),
        "controls": (
            tuple(pauses),
            tuple((use.target, use.limit, use.set) for use in limits),
            tuple((each.task, each.open, each.revision) for each in await store.breakers()),
        ),
    }


async def _seldom(store: Store) -> dict[str, Hashable]:
    """What an operator changes, and what goes on by itself for a while."""
    return {
        "schedules": tuple((each.name, each.revision) for each in await store.next_schedules(SCHEDULES_SEEN)),
        "operations": tuple((each.id, each.state, each.done, each.skipped, each.interrupted) for each in await store.bulks()),
    }


def _lateness(stats: QueueStats) -> int:
    """How many of the bounds the oldest due job has passed."""
    return sum(stats.due > 0 and stats.oldest_age_s >= bound for bound in (BEHIND_AFTER_S, FAR_BEHIND))


def _different(before: Any, now: Any) -> set[str]:
    """The queues whose figures are others, or that came or went."""
    return {queue for queue, _ in set(before) ^ set(now)}


def _places(stats: QueueStats) -> tuple[int, ...]:
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
