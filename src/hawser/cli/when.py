"""Times on the command line: how long, and when."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import click

from hawser.clock import MAX_DELAY

_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)(?![a-z])", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def seconds_of(text: str) -> float | None:
    """The seconds in "90", "90s", "1h30m", "1.5 h"; None when it is no duration."""
    text = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return float(text)
    parts = _DURATION_PART.findall(text)
    if not parts or _DURATION_PART.sub("", text).strip():
        return None
    return sum(float(count) * _SECONDS[unit] for count, unit in parts)


def duration(text: str) -> float:
    """How long, in seconds."""
    seconds = seconds_of(text)
    if seconds is None or seconds > MAX_DELAY:
        raise click.BadParameter(f"{text!r} is not a time up to 10 years; write seconds, or for example 90s, 5m, 1h30m, 2d")
    return seconds


def key_ttl(text: str) -> float | Literal["forever", "start"]:
    """How long a key is held."""
    if text == "start":
        return "start"
    return "forever" if text == "forever" else duration(text)


def instant(text: str) -> datetime:
    """A moment with a time zone."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time; write it as 2026-08-01T09:00+02:00 or 2026-08-01T07:00Z") from None
    if when.utcoffset() is None:
        raise click.BadParameter(f"{text!r} has no time zone; add one, as in 2026-08-01T09:00+02:00 or 2026-08-01T07:00Z")
    if not 1970 < when.year < 9999:
        raise click.BadParameter(f"{text!r}: the year {when.year} is out of range")
    return when


def past(text: str) -> datetime:
    """A moment, or how long ago it was."""
    seconds = seconds_of(text)
    if seconds is not None and seconds <= MAX_DELAY:
        return datetime.now(UTC) - timedelta(seconds=seconds)
    try:
        return instant(text)
    except click.BadParameter as error:
        raise click.BadParameter(f"{error.message}; or how long ago it was, for example 1h or 2d") from None
