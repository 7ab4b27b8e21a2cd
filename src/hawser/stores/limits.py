"""Limits as the stores that decide in Python keep them: starts in a period, and the room that a claim has.

A period is counted in `RATE_PARTS` slots of a fifteenth of it. The slot of now and the fifteen before it cover every span of the
period that ends now, so the sum over them is never less than the starts in that span: the limit holds strictly, at the price of
at most a sixteenth of the rate. A token bucket would let nearly twice as many through in one span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from hawser.clock import at, to_us
from hawser.limit import NO_LIMIT, Limit
from hawser.store import LimitUse, Share, Target

RATE_PARTS: Final = 16


class Window(NamedTuple):
    """The starts of the last period. `counts[n % RATE_PARTS]` are those of slot n; the last slot is `slot`."""

    slot: int = 0
    counts: tuple[int, ...] = (0,) * RATE_PARTS

    def at(self, now: int, width: int) -> Window:
        """The window as it is now.

        When the clock went back by less than the window, starts go on to count in the last slot. By more, they lie in the future
        of the clock and are dropped: else none could start until it is there again.
        """
        current = now // width
        if current <= self.slot:
            return self if self.slot - current < RATE_PARTS else Window(current)
        counts = list(self.counts)
        for slot in range(max(self.slot + 1, current - RATE_PARTS + 1), current + 1):
            counts[slot % RATE_PARTS] = 0
        return Window(current, tuple(counts))

    @property
    def started(self) -> int:
        return sum(self.counts)

    def with_starts(self, starts: int) -> Window:
        counts = list(self.counts)
        counts[self.slot % RATE_PARTS] += starts
        return Window(self.slot, tuple(counts))

    def opens_at(self, most: int, width: int) -> int | None:
        """When the next may start; None when it may now."""
        left = self.started
        for slot in range(self.slot - RATE_PARTS + 1, self.slot + 1):
            if left < most:
                return None if slot == self.slot - RATE_PARTS + 1 else (slot - 1 + RATE_PARTS) * width
            left -= self.counts[slot % RATE_PARTS]
        return (self.slot + RATE_PARTS) * width


class Bound(NamedTuple):
    """What a limit says to claims."""

    running: int | None = None
    starts: int | None = None
    width: int = 0
    """Microseconds of a slot of the rate's period."""
    per_group: bool = False
    ordered: bool = False

    def window(self, kept: Window, now: int) -> Window:
        """The starts of the last period, as of now."""
        return kept.at(now, self.width) if self.starts is not None else kept

    def room(self, running: int, window: Window) -> Room:
        """The room that is left; `window` is as of now."""
        places, opens_at = [], None
        if self.running is not None:
            places.append(self.running - running)
        if self.starts is not None:
            places.append(self.starts - window.started)
            opens_at = window.opens_at(self.starts, self.width)
        return Room(max(0, min(places)), opens_at)

    def told(self, running: int, kept: Window, now: int) -> tuple[int, datetime | None]:
        """The starts that count now, and when the next one may start, if the rate keeps it back."""
        if self.starts is None:
            return 0, None
        window = kept.at(now, self.width)
        opens_at = self.room(running, window).opens_at
        return window.started, None if opens_at is None else at(opens_at)


def bound_of(limit: Limit | None) -> Bound | None:
    """What a limit says to claims; None when that is nothing."""
    if limit is None or not limit.binds_claims:
        return None
    rate = limit.parsed_rate
    # Rounded up: fifteen slots are never less than the period.
    starts, width = (None, 0) if rate is None else (rate.starts, -(-to_us(rate.period) // (RATE_PARTS - 1)))
    return Bound(limit.running, starts, width, limit.per_group, limit.ordered)


class Room(NamedTuple):
    """What a limit leaves to a claim."""

    places: int
    opens_at: int | None = None
    """When its rate lets the next one start, in the store's time; None when the rate does not keep jobs back."""


Rooms = Mapping[Target, Room]
"""What the limits that bind claims leave, by what they limit."""


def is_shut(rooms: Rooms, kind: Literal["queue", "task"], name: str) -> bool:
    """Whether a limit leaves nothing of a queue or task."""
    room = rooms.get(Target(kind, name)) if rooms else None
    return room is not None and room.places <= 0


def bounded(shares: Sequence[Share], room: Mapping[str, int], rooms: Rooms) -> tuple[Sequence[Share], dict[str, int]]:
    """The shares and the room of a claim, with what limits leave of them."""
    left = dict(room)
    if not rooms:
        return shares, left
    for target, found in rooms.items():
        if target.kind == "task":
            left[target.name] = min(found.places, left.get(target.name, found.places))
    return [_bounded(share, rooms.get(Target("queue", share.queue))) for share in shares], left


def _bounded(share: Share, room: Room | None) -> Share:
    if room is None:
        return share
    return replace(share, most=room.places if share.most is None else min(room.places, share.most))


class KeptLimit(NamedTuple):
    """What is said of one queue or task."""

    declared: Limit | None = None
    chosen: Limit | None = None
    """By an operator."""
    since: int | None = None
    by: str = "app"

    @property
    def in_force(self) -> Limit | None:
        return self.declared if self.chosen is None else self.chosen

    @property
    def per_group(self) -> bool:
        return self.in_force is not None and self.in_force.per_group

    def choosing(self, target: Target, limit: Limit | None, now: int, by: str) -> KeptLimit:
        """After an operator has spoken. No code declares limits of queues: a limit of a queue that bounds nothing removes it."""
        chosen = None if target.kind == "queue" and limit == NO_LIMIT else limit
        return KeptLimit(self.declared, chosen, now, by)

    def declaring(self, limit: Limit | None, now: int) -> KeptLimit:
        """After code has spoken."""
        return KeptLimit(limit, self.chosen, *((now, "code") if self.chosen is None else (self.since, self.by)))

    def use(self, target: Target, running: int, kept: Window, now: int, shut_groups: int = 0) -> LimitUse:
        """The limit with how much of it is in use."""
        assert self.in_force is not None
        bound = None if self.in_force.per_group else bound_of(self.in_force)
        window = Window() if bound is None or bound.starts is None else bound.window(kept, now)
        opens_at = None if bound is None else bound.room(running, window).opens_at
        return LimitUse(
            target=target,
            limit=self.in_force,
            declared=self.declared,
            set=self.chosen is not None,
            since=None if self.since is None else at(self.since),
            by=self.by,
            running=running,
            started=window.started,
            opens_at=None if opens_at is None else at(opens_at),
            shut_groups=shut_groups,
        )
