"""Where claims were a moment ago: the place in the order from which the next one reads.

A finished job leaves a dead entry in the index, right where claims begin to read. Vacuum takes it away, but not while any
transaction anywhere holds an old snapshot: then a claim that began at the left end would read past every job done since. So a
claim begins where the head was `LAG` ago. What becomes visible behind that place was committed late, or was given back by a
claim that came to nothing: sweeps look for it, each further back and less often, and move the frontier back to what they find.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hawser.clock import to_us
from hawser.stores.postgres.lane_catalog import Kind, LaneSource

STRETCH: Final = 0.05
"""Seconds for which claims that fill up go on where the last one ended. Then one begins where the head was `LAG` ago, for what
has become visible since: at 40,000 jobs a second that is 6,000 entries to read past."""

LAG: Final = to_us(0.1 + STRETCH)
"""Long enough for a commit to become visible, by far, most of the time."""

FULL: Final = 100
"""Jobs that a claim must take to be worth it."""

SWEEPS: Final = (to_us(1), to_us(15), to_us(120), to_us(900))
"""How often each sweep is made. One reaches back to where the frontier was two of its turns ago, the last to the beginning."""


class FrontierPlace(NamedTuple):
    """A place in the order of one source."""

    run_at: int
    seq: int


START: Final = FrontierPlace(0, 0)


class Gap(NamedTuple):
    """The part behind a frontier that a sweep has to look at."""

    source: LaneSource
    begin: FrontierPlace
    end: FrontierPlace


class Frontier:
    """The frontiers of all sources that one process claims from, in the store's time."""

    def __init__(self) -> None:
        self._heads: dict[LaneSource, deque[tuple[int, FrontierPlace]]] = {}
        self._marks: dict[tuple[int, LaneSource], tuple[FrontierPlace, FrontierPlace]] = {}
        self._swept = [0] * len(SWEEPS)
        self._now = 0
        self._heard = 0.0
        self._ends: dict[LaneSource, FrontierPlace] = {}
        self._looked = 0.0

    def of(self, source: LaneSource) -> FrontierPlace:
        """Where to begin to read. Late jobs have no frontier: any place may be theirs."""
        heads = self._heads.get(source)
        if not heads or source.kind is Kind.LATE:
            return START
        while len(heads) > 1 and heads[1][0] <= self._now - LAG:
            heads.popleft()
        return heads[0][1] if heads[0][0] <= self._now - LAG else START

    def on(self, source: LaneSource) -> FrontierPlace:
        """Where to begin to take: where the last claim ended that was full, but not for long."""
        end = self._ends.get(source)
        if end is not None and time.monotonic() - self._looked < STRETCH:
            return end
        self._ends.clear()
        self._looked = time.monotonic()
        return self.of(source)

    def ended(self, source: LaneSource, end: FrontierPlace | None) -> None:
        """A claim took all that it could, up to there; or found less."""
        if end is None:
            self._ends.pop(source, None)
        else:
            self._ends[source] = end

    def at(self, now: int, asked: float) -> None:
        """The store's time, and when by our own clock we asked for it. It may have been set back: then nothing is known any more.

        It was also set back when it advanced less than our own clock between two answers. The span is from the last answer to
        this request: an answer may come late, and that proves nothing.
        """
        last, self._heard = self._heard, time.monotonic()
        set_back = now < self._now or now - self._now < to_us(asked - last) - LAG // 2
        self._now = now
        if set_back:
            self.forget()

    def forget(self) -> None:
        """Begin everywhere at the left end: any job may stand behind."""
        self._heads.clear()
        self._ends.clear()
        self._marks.clear()
        self._swept = [self._now] * len(SWEEPS)

    def saw(self, source: LaneSource, head: FrontierPlace) -> None:
        """At this time the head was there."""
        if source.kind is Kind.LATE:
            return
        heads = self._heads.setdefault(source, deque([(0, START)]))
        while heads[-1][1] > head and len(heads) > 1:
            heads.pop()  # a job has come to wait before the place that was seen last
        if self._now - heads[-1][0] >= LAG // 8 and head >= heads[-1][1]:
            heads.append((self._now, head))

    def fall_back(self, source: LaneSource, place: FrontierPlace) -> None:
        """A job waits behind: begin there."""
        self._ends.pop(source, None)
        if place < self.of(source):
            self._heads[source] = deque([(0, place)])

    def doubt(self) -> None:
        """Make the next sweep look at everything behind the frontiers."""
        self._swept[-1] = 0

    def gaps(self) -> Iterator[Gap]:
        """What is to be swept now."""
        for level, period in enumerate(SWEEPS):
            if self._now - self._swept[level] >= period:
                self._swept[level] = self._now
                for source in list(self._heads):
                    end = self.of(source)
                    before, last = self._marks.get((level, source), (START, START))
                    self._marks[level, source] = (last, end)
                    begin = START if level == len(SWEEPS) - 1 else min(before, end)
                    if begin < end:
                        yield Gap(source, begin, end)


def columns(places: Sequence[FrontierPlace]) -> tuple[list[int], list[int]]:
    return [place.run_at for place in places], [place.seq for place in places]
