"""A breaker: when most attempts of a task fail, its jobs wait, but for a probe now and then."""

from __future__ import annotations

from math import isfinite

import msgspec

from hawser.errors import ConfigError


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """When the breaker of a task opens, and how often it tries whether it may close."""

    share: float = 0.8
    """The part of the attempts that must have failed."""
    window: float = 300.0
    """Seconds over which attempts are counted, to the minute."""
    least: int = 20
    """Attempts that there must have been."""
    probe_every: float = 60.0
    """Seconds between two jobs that are started while it is open. One that is done closes it."""

    def __post_init__(self) -> None:
        _number("share", self.share, 0.01, 1.0)
        _number("window", self.window, 1.0, 3_600.0)
        _number("probe_every", self.probe_every, 0.1, 86_400.0)
        if not isinstance(self.least, int) or isinstance(self.least, bool) or not 1 <= self.least <= 1_000_000:
            raise ConfigError(f"least: {self.least!r} is not a whole number from 1 to 1,000,000")


def _number(field: str, value: object, least: float, most: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or not least <= value <= most:
        raise ConfigError(f"{field}: {value!r} is not a number from {least:g} to {most:g}")
