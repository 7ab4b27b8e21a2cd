"""Time zones: which instant a wall time is, and when the offset of a zone changes. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from hawser.errors import ConfigError, did_you_mean

SECOND: Final = timedelta(seconds=1)


def zone_of(name: str) -> tzinfo:
    """The time zone; `ConfigError` when this machine knows none of that name."""
    if name == "UTC":
        return UTC  # known also where there is no database of zones
    try:
        # "localtime" is another zone on every machine.
        return ZoneInfo(name if name != "localtime" else "")
    except (KeyError, ValueError, OSError):
        zones = available_timezones() - {"localtime"}
        hint = did_you_mean(name, zones, "use a name such as 'Europe/Berlin' or 'UTC'", most=2)
        raise ConfigError(f"schedule: tz: no time zone is called {name!r} here; {hint}") from None


def offset_of(instant: datetime, zone: tzinfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


def wall_of(instant: datetime, zone: tzinfo) -> datetime:
    """What a clock on the wall shows."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def first_instant(wall: datetime, zone: tzinfo) -> datetime:
    """The first instant at which the wall shows this time; when it never does, the first after the jump over it."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if wall_of(instant, zone) == wall:
        return instant
    # Within the jump: the offset before it puts the wall time behind it, and the other way round.
    return _change_within(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def _change_within(low: datetime, high: datetime, zone: tzinfo) -> datetime:
    """The instant, to the second, at which the offset changes between the two."""
    before = offset_of(low, zone)
    while high - low > SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        low, high = (middle, high) if offset_of(middle, zone) == before else (low, middle)
    return high


def first_change(tz: str, after: datetime, until: datetime) -> datetime | None:
    """The first instant in (after, until] at which the zone's offset changes."""
    for year in range(after.year, until.year + 1):
        for change in _changes(tz, year):
            if after < change <= until:
                return change
    return None


@lru_cache(maxsize=4_096)
def _changes(tz: str, year: int) -> tuple[datetime, ...]:
    """The changes of a zone's offset in a year. Looked for day by day (0.5 ms): no zone changes twice in a day."""
    zone = zone_of(tz)
    found = []
    day = datetime(year, 1, 1, tzinfo=UTC)
    while day.year == year:
        following = day + timedelta(days=1)
        if offset_of(day, zone) != offset_of(following, zone):
            found.append(_change_within(day, following, zone))
        day = following
    return tuple(found)
