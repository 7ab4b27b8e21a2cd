"""A limit: how many jobs of a queue or task may wait, run at once, or start in a period, over all workers."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from hawser.errors import ConfigError

LARGEST_LIMIT: Final = 1_000_000_000
"""The largest number that a limit may have."""

RATE_PATTERN: Final = "^[1-9][0-9]{0,8}/(([1-9][0-9]{0,4})?s|([1-9][0-9]{0,3})?m|([1-9][0-9]?)?h|[1-7]?d)$"
"""What a rate looks like: at least one start, a period of at most a week."""

_PERIOD_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Rate(NamedTuple):
    """So many starts in any span of so many seconds."""

    starts: int
    period: float


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for the jobs of one queue or one task, counted over all workers. None is no limit."""

    running: int | None = None
    """How many may run at once. A run counts until it is settled or reclaimed."""
    rate: str | None = None
    """How many may start in any span of a period: `20/s`, `100/m`, `1000/h`, `5/d`, or `100/10s`. Retries start again."""
    max_depth: int | None = None
    """How many may wait: beyond that enqueue raises `QueueFull`. Of a queue only."""
    per_group: bool = False
    """Count the jobs of each group for themselves, over all queues. Of a task only. Jobs without a group are not counted."""
    ordered: bool = False
    """Start the jobs of a group strictly in their order: one that has started keeps its group until it is done, dead or
    cancelled, also while it waits for another attempt. With `running=1, per_group=True`."""

    def __post_init__(self) -> None:
        _whole("running", self.running, 1, "pause the queue or task to let none run")
        _whole("max_depth", self.max_depth, 0, "None is no limit")
        if self.rate is not None:
            rate_of(self.rate)
        for field in ("per_group", "ordered"):
            if not isinstance(getattr(self, field), bool):
                raise ConfigError(f"{field}: {getattr(self, field)!r} is not True or False")
        if self.ordered and not (self.per_group and self.running == 1):
            raise ConfigError("ordered: the jobs of a group start one after the other; add running=1, per_group=True")
        if self.per_group and self.max_depth is not None:
            raise ConfigError("per_group: a group has no depth; leave max_depth out, and set it on the queue")
        if self.per_group and not self.binds_claims:
            raise ConfigError("per_group: it says nothing of a group; give running, rate, or both")

    @property
    def parsed_rate(self) -> Rate | None:
        """The rate as numbers; None without one."""
        return None if self.rate is None else rate_of(self.rate)

    @property
    def binds_claims(self) -> bool:
        """Whether it says anything of what runs or starts."""
        return self.running is not None or self.rate is not None


def rate_of(text: object) -> Rate:
    """A rate in words; `ConfigError` when it is none."""
    if not isinstance(text, str) or "\n" in text or re.match(RATE_PATTERN, text) is None:
        raise ConfigError(
            f"rate: {text!r} is not a rate; write starts/period with at least one start and at most 7 days, "
            "such as '20/s', '100/m', '1000/h' or '100/10s'"
        )
    starts, _, period = text.partition("/")
    return Rate(int(starts), float(int(period[:-1] or 1) * _PERIOD_UNITS[period[-1]]))


def _whole(field: str, value: object, least: int, hint: str) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST_LIMIT):
        raise ConfigError(f"{field}: {value!r} is not a whole number from {least} to {LARGEST_LIMIT:,}; {hint}")


NO_LIMIT: Final = Limit()
