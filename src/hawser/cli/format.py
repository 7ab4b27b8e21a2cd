"""What a person reads: times and figures in words, and other people's text made harmless."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

_TIME_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def clean(text: str, longest: int | None = None) -> str:
    """The text on one line, every character that a terminal might obey written as its number; cut to so many characters."""
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def clean_lines(text: str) -> Iterator[str]:
    """The text line by line, each made harmless."""
    for line in text.split("\n"):
        yield clean(line.rstrip("\r").expandtabs(4))


def now() -> datetime:
    return datetime.now(UTC)


def duration(seconds: float, *, units: int = 2) -> str:
    """How long, in at most so many units: 350 ms, 42 s, 1 min 30 s, 5 d 3 h."""
    if math.isinf(seconds):
        return "forever"
    if seconds < 0.0005:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95 and units > 1:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    left = round(seconds)
    words: list[str] = []
    for size, unit in _TIME_UNITS:
        if left >= size and len(words) < units:
            count, left = divmod(left, size)
            words.append(f"{count} {unit}")
        elif words:
            # "2 d 5 s" says less than "2 d": only the next smaller unit may follow.
            break
    return " ".join(words)


def ago(when: datetime, now: datetime) -> str:
    """How long ago, or in how long, in one unit."""
    seconds = (now - when).total_seconds()
    return f"{duration(seconds, units=1)} ago" if seconds >= 0 else f"in {duration(-seconds, units=1)}"


def instant(when: datetime, now: datetime) -> str:
    """The time on this machine's wall, and how far away it is."""
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S %Z}, {ago(when, now)}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def per_second(rate: float) -> str:
    """A rate with as many digits as matter."""
    if not rate:
        return "0/s"
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"
