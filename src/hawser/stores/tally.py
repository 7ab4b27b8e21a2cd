"""What happened, counted per minute, queue, task and event; and the rates that follow from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, get_args

from msgspec.structs import replace

from hawser.clock import at
from hawser.outcome import Step
from hawser.store.rollup import BUCKETS, Kind, Measured, Rollup

MINUTE: Final = 60_000_000
RATE_MINUTES: Final = 5
ATTEMPT_MINUTES: Final = 60
KEEP_MINUTES: Final = 24 * 60
"""Minutes that tallies are kept."""

STALE_EXTENSION: Final = "stale_extension"
"""AttemptCount apart from stale settlements: an extension may be on its way while its run is settled, and that does no harm."""

EVENTS: Final = (
    "enqueued",
    "deduplicated",
    "claimed",
    "done",
    "failed",
    "dead",
    "cancelled",
    "returned",
    "lost",
    "stale",
    STALE_EXTENSION,
)
_ENDED: Final = "ended:"
_TIMES: Final = tuple((kind, f"{kind}:") for kind in get_args(Kind))
_MOST: Final = 99
_EMPTY: Final = (0,) * (len(BUCKETS) + 1)


def events_of(step: Step, attempt: int) -> list[str]:
    """What is counted when a run ends as the step says: how the attempt went, and the job's end if it came to one."""
    events: list[str] = []
    if step.counts_as is not None:
        events.append(step.counts_as)
    if step.state.finished:
        events += [step.state.value, f"{_ENDED}{min(attempt, _MOST)}"]
    return events


class Minutes(NamedTuple):
    """Which minutes are summed: those behind `ended` for how jobs ended, those behind `recent` up to `this` for the rest."""

    ended: int
    recent: int
    this: int


def minutes_of(now: int) -> Minutes:
    this = now // MINUTE
    return Minutes(this - ATTEMPT_MINUTES, this - RATE_MINUTES, this)


def summed(counts: Iterable[tuple[int, str, int]], now: int) -> dict[str, int]:
    """By event, from (minute, event, count): what `rates` and `attempts_p99` are made of. A database sums in SQL."""
    ended, recent, this = minutes_of(now)
    sums: defaultdict[str, int] = defaultdict(int)
    for minute, event, count in counts:
        if minute > ended if event.startswith(_ENDED) else recent < minute <= this:
            sums[event] += count
    return sums


def rates(sums: Mapping[str, int], now: int) -> dict[str, float]:
    """Events per second over the last five minutes."""
    seconds = (RATE_MINUTES - 1) * 60 + (now % MINUTE) / 1_000_000
    return {event: round(sums.get(event, 0) / seconds, 3) for event in EVENTS}


def event_of(measured: Measured) -> str:
    """How a bucket is tallied."""
    return f"{measured.kind}:{measured.bucket}"


def rolled(counts: Iterable[tuple[int, str, int]], now: int, minutes: int) -> list[Rollup]:
    """One rollup for each of the last minutes, those without any event too, from (minute, event, count)."""
    this = now // MINUTE
    rollups = {
        minute: Rollup(minute=at(minute * MINUTE), counts=dict.fromkeys(EVENTS, 0), wait=_EMPTY, run=_EMPTY)
        for minute in range(this - minutes + 1, this + 1)
    }
    times = {(minute, kind): [0] * (len(BUCKETS) + 1) for minute in rollups for kind, _ in _TIMES}
    for minute, event, count in counts:
        if minute not in rollups:
            continue
        if event in rollups[minute].counts:
            rollups[minute].counts[event] += count
        for kind, prefix in _TIMES:
            if event.startswith(prefix):
                times[minute, kind][int(event.removeprefix(prefix))] += count
    return [replace(rollup, **{kind: tuple(times[minute, kind]) for kind, _ in _TIMES}) for minute, rollup in rollups.items()]


def attempts_p99(sums: Mapping[str, int]) -> int:
    """The attempts that 99 of 100 jobs needed at most, of those that ended in the last hour; 0 when none did."""
    ended = {int(event.removeprefix(_ENDED)): count for event, count in sums.items() if event.startswith(_ENDED)}
    left = sum(ended.values()) // 100
    for attempts in sorted(ended, reverse=True):
        if ended[attempts] > left:
            return attempts
        left -= ended[attempts]
    return 0
