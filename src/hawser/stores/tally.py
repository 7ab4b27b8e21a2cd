"""What happened, counted per minute, queue, task and event; and the rates that follow from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast, get_args

from msgspec.structs import replace

from hawser.clock import at
from hawser.outcome import Step
from hawser.store.rollup import BUCKETS, Kind, Measured, Rollup

MINUTE_US: Final = 60_000_000
RATE_MINUTES: Final = 5
LEAST_RATE_S: Final = 60.0
"""A shorter time says little of a rate."""

ATTEMPT_MINUTES: Final = 60
KEEP_MINUTES: Final = 24 * 60
"""Minutes that tallies are kept."""

STALE_EXTENSION: Final = "stale_extension"
"""AttemptCount apart from stale settlements: an extension may be on its way while its run is settled, and that does no harm."""

TALLIED_EVENTS: Final = (
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
_ENDED_PREFIX: Final = "ended:"
ENDED_WITH: Final = {f"{_ENDED_PREFIX}{attempt}": attempt for attempt in range(1, 100)}
"""The events that count jobs that ended, and with which attempt; the last is of all beyond, too."""

_TIMES: Final = tuple((kind, f"{kind}:") for kind in get_args(Kind))
TIMED: Final = tuple(prefix for _, prefix in _TIMES)
"""How the events begin that are counts of measured times."""

_MOST_ATTEMPTS: Final = 99
_NO_TIMES: Final = (0,) * (len(BUCKETS) + 1)


def events_of(step: Step, attempt: int) -> list[str]:
    """What is counted when a run ends as the step says: how the attempt went, and the job's end if it came to one."""
    events: list[str] = []
    if step.counts_as is not None:
        events.append(step.counts_as)
    if step.state.finished:
        events += [step.state.value, f"{_ENDED_PREFIX}{min(attempt, _MOST_ATTEMPTS)}"]
    return events


class Minutes(NamedTuple):
    """Which minutes are summed: those behind `ended` for how jobs ended, those behind `recent` up to `this` for the rest."""

    ended: int
    recent: int
    this: int


def minutes_of(now: int) -> Minutes:
    this = now // MINUTE_US
    return Minutes(this - ATTEMPT_MINUTES, this - RATE_MINUTES, this)


def summed(counts: Iterable[tuple[int, str, int]], now: int) -> dict[str, int]:
    """By event, from (minute, event, count): what `rates` and `attempts_p99` are made of. A database sums in SQL."""
    ended, recent, this = minutes_of(now)
    sums: defaultdict[str, int] = defaultdict(int)
    for minute, event, count in counts:
        if minute > ended if event.startswith(_ENDED_PREFIX) else recent < minute <= this:
            sums[event] += count
    return sums


def rate_seconds(now: int, first: int | None) -> float:
    """How long a time rates are over. `first` is the first minute of the last hour in which anything was counted."""
    this = now // MINUTE_US
    covered = 1 if first is None else max(1, this - first + 1)
    return max(LEAST_RATE_S, (min(RATE_MINUTES, covered) - 1) * 60 + (now % MINUTE_US) / 1_000_000)


def rates(sums: Mapping[str, int], now: int, first: int | None) -> dict[str, float]:
    """Events per second over the last five minutes, or over those that there are."""
    seconds = rate_seconds(now, first)
    return {event: round(sums.get(event, 0) / seconds, 3) for event in TALLIED_EVENTS}


def event_of(measured: Measured) -> str:
    """How a bucket is tallied."""
    return f"{measured.kind}:{measured.bucket}"


def times_of(counts: Iterable[tuple[str, str, str, int]]) -> list[Measured]:
    """The sums of what was measured, from (queue, task, event, count); other events are left out."""
    sums: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for queue, task, event, count in counts:
        if event.startswith(TIMED):
            sums[queue, task, event] += count
    found = []
    for (queue, task, event), count in sums.items():
        kind, _, bucket = event.partition(":")
        found.append(Measured(queue, task, cast("Kind", kind), int(bucket), count))
    return found


def rolled(counts: Iterable[tuple[int, str, int]], now: int, minutes: int) -> list[Rollup]:
    """One rollup for each of the last minutes, those without any event too, from (minute, event, count)."""
    this = now // MINUTE_US
    rollups = {
        minute: Rollup(minute=at(minute * MINUTE_US), counts=dict.fromkeys(TALLIED_EVENTS, 0), wait=_NO_TIMES, run=_NO_TIMES)
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
    ended = {int(event.removeprefix(_ENDED_PREFIX)): count for event, count in sums.items() if event.startswith(_ENDED_PREFIX)}
    left = sum(ended.values()) // 100
    for attempts in sorted(ended, reverse=True):
        if ended[attempts] > left:
            return attempts
        left -= ended[attempts]
    return 0
