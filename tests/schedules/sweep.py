"""Rules against the oracle. As a program it goes through every minute of 2024 to 2032, in every zone:

    python -m tests.schedules.sweep

Prints one JSON object; exit code 1 when a tick differs.
"""

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hawser.clock import at, from_datetime
from hawser.schedule.rule import Cron
from tests.schedules.oracle import ticks, walls

ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "America/Santiago",
    "Antarctica/Troll",
)
FIXED = (
    "30 2 * * *",
    "0 0 * * *",
    "45 2 * * *",
    "15,45 1-3 * * 0",
    "0 3 1,15 * 1",
    "5 0-23/6 * 3,4,9,10,11 *",
    "30 1 * * 0",
    "0 2 * 3-11 0",
    "15 0 * * 6,0",
)
REAL = ("* * * * *", "0 * * * *", "*/15 * * * *", "*/20 2 * * *", "*/30 */2 * * *", "10 */3 * * 6,0", "*/7 1 * * *")
START, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2033, 1, 1, tzinfo=UTC)

Minutes = list[tuple[datetime, datetime]]


def differing(expression: str, tz: str, minutes: Minutes) -> tuple[int, list[datetime]]:
    """How many ticks there are in these minutes, and those on which rule and oracle do not agree."""
    want = set(ticks(expression, minutes))
    rule, got = Cron(expression, tz), set()
    tick, end = rule.after(from_datetime(minutes[0][0]) - 1), from_datetime(minutes[-1][0])
    while tick is not None and tick <= end:
        got.add(at(tick))
        tick = rule.after(tick)
    return len(want), sorted(want ^ got)


def around_changes(tz: str) -> list[Minutes]:
    """The minutes of the days on which the zone changes its offset, and those around."""
    zone, found, day = ZoneInfo(tz), [], START
    while day < END:
        following = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            found.append(walls(tz, day - timedelta(hours=12), following + timedelta(hours=30)))
        day = following
    return found


def sweep(tz: str) -> tuple[str, int, list[str]]:
    minutes = walls(tz, START, END)
    count, wrong = 0, []
    for expression in FIXED + REAL:
        some, differ = differing(expression, tz, minutes)
        count += some
        wrong += [f"{expression} at {tick.isoformat()}" for tick in differ]
    return tz, count, wrong


def main() -> int:
    began = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(sweep, ZONES))
    report = {
        "zones": {tz: {"ticks": count, "mismatches": len(wrong)} for tz, count, wrong in found},
        "expressions": len(FIXED + REAL),
        "minutes": len(ZONES) * ((END - START) // timedelta(minutes=1)),
        "ticks": sum(count for _, count, _ in found),
        "mismatches": sum(len(wrong) for *_, wrong in found),
        "first": [text for *_, wrong in found for text in wrong][:20],
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(report, indent=2))
    return 1 if report["mismatches"] else 0


if __name__ == "__main__":
    sys.exit(main())
