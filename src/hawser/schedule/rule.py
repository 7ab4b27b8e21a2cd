"""When a schedule has its ticks: cron expressions in a time zone, and intervals. Pure: no clock is read here.

Daylight saving. A cron expression is *fixed* when neither its minute nor its hour begins with `*`. A fixed time that does not
exist on a day (the clock jumps over it) has its tick at the first instant after the jump. A fixed time that exists twice has
one tick, at the first of the two. All other expressions follow real time: `0 * * * *` has a tick every real hour: none
in an hour that is left out and two in one that comes twice.

The calendar, that is which wall times match, is cronsim's; which instants those are is decided here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Final, Literal, get_args

import msgspec
from cronsim import CronSim, CronSimError

from hawser.clock import MAX_DELAY, at, from_datetime, to_us
from hawser.errors import ConfigError, did_you_mean
from hawser.schedule.zone import SECOND, first_change, first_instant, offset_of, wall_of, zone_of

Missed = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip"]

SHORTEST: Final = 1.0
"""Seconds: the shortest interval between two ticks."""

EXPRESSION_CHARACTERS: Final = 256
"""Characters of an expression."""

MOST_MISSED: Final = 1_000
"""The most ticks that `missed="all"` may be told to make up for."""

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Rule(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What `Cron` and `Every` have in common: what happens beside the ticks themselves."""

    missed: Missed = "once"
    """What happens to ticks that no scheduler fired in time: `skip` drops them, `once` makes one job for the latest, `all` one
    for each of the latest `most_missed`."""
    most_missed: int = 100
    """How many `missed="all"` makes up for at the most; older ones are dropped. Only counts there."""
    overlap: Overlap = "allow"
    """`skip`: a tick makes no job while the schedule's last one is live."""
    jitter: float | timedelta = 0.0
    """Seconds. Each job is due up to so much after its tick, always the same for the same tick."""
    start: datetime | None = None
    """No tick before this instant. An `Every` counts from here, else from midnight UTC of 1 January 1970."""
    end: datetime | None = None
    """No tick after this instant."""
    payload: Mapping[str, Any] | None = None
    """The arguments of the jobs, by name."""

    def __post_init__(self) -> None:
        if isinstance(self.jitter, timedelta):
            msgspec.structs.force_setattr(self, "jitter", self.jitter.total_seconds())
        _check_policies(self)

    def after(self, us: int) -> int | None:
        """The first tick after that instant; None when 50 years have no tick. All in microseconds."""
        if self.start is not None:
            us = max(us, from_datetime(self.start) - 1)
        tick = self._after(us)
        return None if tick is None or (self.end is not None and tick > from_datetime(self.end)) else tick

    @property
    def words(self) -> str:
        """The rule for a person to read."""
        raise NotImplementedError

    @property
    def zone(self) -> tzinfo:
        """The zone on whose wall clock its ticks are shown."""
        return UTC

    def _after(self, us: int) -> int | None:
        raise NotImplementedError


class Cron(Rule, frozen=True, tag="cron"):
    """A cron expression: minute, hour, day of month, month, day of week; with six fields the first is the second.

    `L`, `LW`, `MON#2`, `FRIL`, names of months and days, and `@daily` and the like are known. When both the day of month and
    the day of week are given, either will do, as in cron.
    """

    expression: str
    tz: str = "UTC"
    """The time zone by its name, such as Europe/Berlin."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("expression", "tz"):
            value = getattr(self, field)
            if not isinstance(value, str) or len(value) > EXPRESSION_CHARACTERS:
                raise ConfigError(f"schedule: {field}: {value!r:.100} is not a text of up to {EXPRESSION_CHARACTERS} characters")
        _calendar(self.expression)
        zone_of(self.tz)

    @property
    def fixed(self) -> bool:
        """Whether it names times of the day, rather than following real hours or minutes."""
        _, minute, hour, *_ = _calendar(self.expression).parts
        return not minute.startswith("*") and not hour.startswith("*")

    @property
    def zone(self) -> tzinfo:
        """The zone on whose wall clock its ticks are."""
        return zone_of(self.tz)

    @property
    def words(self) -> str:
        """The rule for a person to read."""
        return f"{_calendar(self.expression).explain()} ({self.tz})"

    def _after(self, us: int) -> int | None:
        tick = self._fixed_after(at(us)) if self.fixed else self._real_after(at(us))
        return None if tick is None else from_datetime(tick)

    def _fixed_after(self, after: datetime) -> datetime | None:
        """Wall times in their order, each at its first instant."""
        zone = self.zone
        wall: datetime | None = wall_of(after, zone)
        while wall is not None:
            wall = self._next_wall(wall)
            if wall is not None and (tick := first_instant(wall, zone)) > after:
                return tick
        return None

    def _real_after(self, after: datetime) -> datetime | None:
        """Instants in their order, each stretch between two changes of the zone's offset by itself."""
        zone = self.zone
        offset = offset_of(after, zone)
        wall: datetime | None = wall_of(after, zone)
        while wall is not None:
            wall = self._next_wall(wall)
            if wall is None:
                return None
            tick = wall.replace(tzinfo=UTC) - offset
            change = first_change(self.tz, after, tick)
            if change is None:
                return tick
            after, offset = change, offset_of(change, zone)
            wall = wall_of(change, zone) - SECOND
        return None

    def _next_wall(self, wall: datetime) -> datetime | None:
        walk = copy.copy(_calendar(self.expression))
        walk.dt = wall.replace(microsecond=0, fold=0)
        return next(walk, None)


class Every(Rule, frozen=True, kw_only=True, tag="every"):
    """An interval: `Every(minutes=5)`. Its ticks lie at whole multiples of it since `start`, whenever a scheduler was started."""

    days: float = 0.0
    hours: float = 0.0
    minutes: float = 0.0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("days", "hours", "minutes", "seconds"):
            if not _is_time(getattr(self, field)):
                raise ConfigError(f"schedule: {field}: {getattr(self, field)!r} is not a number from 0")
        if not SHORTEST <= self._interval / 1_000_000 <= MAX_DELAY:
            raise ConfigError(f"schedule: an interval of {self._interval / 1e6:g} s; use 1 s to 10 years, as in Every(minutes=5)")

    @property
    def words(self) -> str:
        """The rule for a person to read."""
        parts: list[str] = []
        left = self._interval / 1_000_000
        for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
            count, left = divmod(left, size)
            if count:
                parts.append(f"{count:g} {unit}s" if count > 1 else unit if not parts and not left else f"1 {unit}")
        if left:
            parts.append("second" if left == 1 and not parts else f"{left:g} seconds")
        return f"Every {' '.join(parts)}"

    @property
    def _interval(self) -> int:
        return to_us(self.days * 86_400 + self.hours * 3_600 + self.minutes * 60 + self.seconds)

    def _after(self, us: int) -> int:
        first = 0 if self.start is None else from_datetime(self.start)
        return first + ((us - first) // self._interval + 1) * self._interval


AnyRule = Cron | Every

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyRule).decode


def text_of(rule: AnyRule) -> str:
    """The rule as stores keep it, as JSON; without its payload, which is the job's."""
    return _encode(msgspec.structs.replace(rule, payload=None)).decode()


@lru_cache(maxsize=16_384)
def rule_of(text: str) -> AnyRule:
    """The rule of such a text. Raises what `Cron` and `Every` raise: this machine may not know a zone that another knows."""
    rule: AnyRule = _decode(text)
    return rule


@lru_cache(maxsize=8_192)
def tick_after(rule: AnyRule, us: int) -> int | None:
    """As `rule.after`, remembered: many schedules share a rule, and then all of them are due at the same instant."""
    return rule.after(us)


# The calendar.


@lru_cache(maxsize=16_384)
def _calendar(expression: str) -> CronSim:
    """The parsed expression, on no date in particular: copied before it walks."""
    text = ALIASES.get(expression.strip().lower(), expression)
    if text.startswith("@"):
        raise ConfigError(f"schedule: expression: {expression!r} is not known; {did_you_mean(text.lower(), ALIASES)}")
    try:
        parsed = CronSim(text, datetime(2000, 1, 1))  # noqa: DTZ001  # a wall time has no zone
        if next(copy.copy(parsed), None) is None:
            raise _never(expression)
    except CronSimError as error:
        if _is_right_in_some_month(text):
            raise _never(expression) from None
        hint = "it has 5 fields (minute hour day month weekday), or 6 with the second first"
        raise ConfigError(f"schedule: expression: {expression!r}: {str(error).lower()}; {hint}") from None
    return parsed


@lru_cache(maxsize=1_024)
def _never(expression: str) -> ConfigError:
    return ConfigError(f"schedule: expression: {expression!r} names no day that ever comes; check day and month")


def _is_right_in_some_month(text: str) -> bool:
    """Whether only the month is wrong for the day, as in 30 February."""
    fields = text.split()
    if len(fields) not in (5, 6) or fields[-2] == "*":
        return False
    try:
        CronSim(" ".join((*fields[:-2], "1", fields[-1])), datetime(2000, 1, 1))  # noqa: DTZ001  # as above
        CronSim(" ".join((*fields[:-3], "1", *fields[-2:])), datetime(2000, 1, 1))  # noqa: DTZ001  # as above
    except CronSimError:
        return False
    return True


# What may be asked for.


def _check_policies(rule: Rule) -> None:
    if rule.missed not in get_args(Missed):
        raise ConfigError(f"schedule: missed: {rule.missed!r} is not known; use skip, once or all")
    if rule.overlap not in get_args(Overlap):
        raise ConfigError(f"schedule: overlap: {rule.overlap!r} is not known; use allow or skip")
    most = rule.most_missed
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST_MISSED:
        raise ConfigError(f"schedule: most_missed: {most!r} is not a whole number from 1 to {MOST_MISSED:,}")
    if not _is_time(rule.jitter, 86_400):
        raise ConfigError(f"schedule: jitter: {rule.jitter!r} is not a time from 0 s to one day")
    for field in ("start", "end"):
        when = getattr(rule, field)
        if when is not None and (not isinstance(when, datetime) or when.utcoffset() is None):
            raise ConfigError(f"schedule: {field}: {when!r} is not a datetime with a time zone; use e.g. datetime.now(UTC)")
        if when is not None and not 1970 < when.year < 9000:
            raise ConfigError(f"schedule: {field}: the year {when.year} is out of range")
    if rule.start is not None and rule.end is not None and rule.end < rule.start:
        raise ConfigError("schedule: end: it lies before the start; swap them, or leave one out")
    if rule.payload is not None and not isinstance(rule.payload, Mapping):
        raise ConfigError(f"schedule: payload: {type(rule.payload).__qualname__}; use a dict of the arguments by name")


def _is_time(value: Any, longest: float = math.inf) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= longest
