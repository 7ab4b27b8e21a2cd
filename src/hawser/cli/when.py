"""Times on the command line: how long, and when."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from hawser.job import MAX_DELAY

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|w)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def seconds_of(text: str) -> float | None:
    """The seconds in "90", "90s", "1h30m", "1.5 h"; None when it is no duration."""
    text = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return float(text)
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return None
    return sum(float(count) * _SECONDS[unit] for count, unit in parts)


class Duration(click.ParamType):
    """How long, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return float(value)
        seconds = seconds_of(value)
        if seconds is None or seconds > MAX_DELAY:
            self.fail(f"{value!r} is not a time up to 10 years; write seconds, or for example 90s, 5m, 1h30m, 2d", param, ctx)
        return seconds


class KeyTtl(Duration):
    """How long a key is held."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "forever" else super().convert(value, param, ctx)


class Instant(click.ParamType):
    """A moment with a time zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            when = datetime.fromisoformat(value.strip())
        except ValueError:
            self.fail(f"{value!r} is not a time; write it as 2026-08-01T09:00+02:00 or 2026-08-01T07:00Z", param, ctx)
        if when.utcoffset() is None:
            self.fail(f"{value!r} has no time zone; add one: {value}Z or {value}+02:00", param, ctx)
        if not 1970 < when.year < 9999:
            self.fail(f"{value!r}: the year {when.year} is out of range", param, ctx)
        return when


class Past(Instant):
    """A moment, or how long ago it was."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        seconds = seconds_of(value) if isinstance(value, str) else None
        if seconds is not None and seconds <= MAX_DELAY:
            return datetime.now(UTC) - timedelta(seconds=seconds)
        return super().convert(value, param, ctx)
