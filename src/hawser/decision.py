"""What a handler raises to choose its outcome."""

from __future__ import annotations

from datetime import timedelta

from hawser.clock import MAX_DELAY


class Decision(Exception):
    """The root of what a handler may raise to choose its outcome."""


class Drop(Decision):
    """Dead-letter the job at once: trying again cannot help."""


class BadStep(Drop):
    """A step of the handler cannot be recorded: its name was used before, or its value is too large or is not JSON."""


class Cancel(Decision):
    """End the job as cancelled: it is no longer wanted."""


class Retry(Decision):
    """This attempt failed; try again after so many seconds (default: the task's backoff), while attempts are left."""

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.after = _seconds("Retry: after", after) if after is not None else None


class Snooze(Decision):
    """Not yet: run the job again in so many seconds, without burning an attempt."""

    def __init__(self, seconds: float | timedelta, reason: str = "") -> None:
        super().__init__(reason)
        self.seconds = _seconds("Snooze", seconds)


def _seconds(name: str, value: float | timedelta) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_DELAY:
        raise ValueError(f"{name}: {value!r} is not a time in seconds; use a number from 0 to 10 years, or a timedelta")
    return float(seconds)
