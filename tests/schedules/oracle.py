"""When a cron expression has its ticks, found by looking at every minute. Written from the words of the rule, not from the code.

It walks through time minute by minute and asks of each what a wall clock in the zone shows. Seconds, `L`, `#` and the like are
left out: they have nothing to do with the zones.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        body, _, step = part.partition("/")
        if body == "*":
            first, last = low, high
        elif "-" in body:
            first, last = map(int, body.split("-"))
        else:
            first = int(body)
            last = high if step else first
        found |= set(range(first, last + 1, int(step or 1)))
    return found


class Expression:
    """Which minutes on the wall match."""

    def __init__(self, text: str) -> None:
        fields = text.split()
        self.minute, self.hour, self.day, self.month, self.weekday = (
            numbers(field, *bounds) for field, bounds in zip(fields, BOUNDS, strict=True)
        )
        self.either_day = not fields[2].startswith("*") and not fields[4].startswith("*")
        self.fixed = not fields[0].startswith("*") and not fields[1].startswith("*")

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minute or wall.hour not in self.hour or wall.month not in self.month:
            return False
        weekday = wall.isoweekday() % 7
        by_day, by_weekday = wall.day in self.day, weekday in self.weekday or weekday + 7 in self.weekday
        return (by_day or by_weekday) if self.either_day else (by_day and by_weekday)


def walls(tz: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Every minute from start to end: the instant, and what the wall shows."""
    zone, instant, found = ZoneInfo(tz), start, []
    while instant < end:
        found.append((instant, instant.astimezone(zone).replace(tzinfo=None)))
        instant += MINUTE
    return found


def ticks(text: str, minutes: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """A fixed time that the wall leaves out fires at the first minute after; one that it shows twice fires the first time;
    anything else fires whenever the wall shows it."""
    expression = Expression(text)
    shown = minutes[0][1] - MINUTE
    latest = shown
    for instant, wall in minutes:
        if not expression.fixed:
            due = expression.matches(wall)
        elif wall <= latest:
            due = False  # the wall has shown this before
        else:
            left_out = (wall - latest) // MINUTE - 1
            due = any(expression.matches(wall - MINUTE * back) for back in range(left_out + 1))
        latest = max(latest, wall)
        if due:
            yield instant
