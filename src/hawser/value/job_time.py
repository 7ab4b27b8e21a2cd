"""The times of a new job, checked: when it is due, how long its key is held, and when it is too late for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from hawser.clock import MAX_DELAY
from hawser.errors import FieldError, InvalidJob

SHORTEST_S: Final = 0.000_001
"""The shortest expiry and debounce in seconds: stores count in microseconds, and 0 stands for none."""

_FOREVER: Final = math.inf
_UNTIL_START: Final = -math.inf


class Timed(Protocol):
    """What of a new job its times are judged by."""

    @property
    def expires(self) -> float | None: ...
    @property
    def debounce(self) -> float | None: ...
    @property
    def at_most(self) -> float | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def key_ttl(self) -> float: ...
    @property
    def delay(self) -> float: ...
    @property
    def run_at(self) -> datetime | None: ...
    @property
    def batch(self) -> str | None: ...
    @property
    def waits_for(self) -> tuple[str, ...]: ...


def read_times(fields: dict[str, Any]) -> None:
    """Times as seconds, however they are given."""
    for name in ("delay", "timeout", "key_ttl", "expires", "debounce", "at_most"):
        if isinstance(fields.get(name), timedelta):
            fields[name] = fields[name].total_seconds()
    if fields.get("key_ttl") == "forever":
        fields["key_ttl"] = _FOREVER
    elif fields.get("key_ttl") == "start":
        fields["key_ttl"] = _UNTIL_START


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def time_faults(job: Timed) -> Iterator[FieldError]:
    """Of when it is due, and when it is too late for it."""
    yield from due_faults(job.delay, job.run_at)
    yield from expiry_faults(job.expires, job.delay if job.debounce is None else job.debounce)
    yield from debounce_faults(job)


def due_faults(delay: Any, run_at: Any) -> Iterator[FieldError]:
    if not is_number(delay) or not 0 <= delay <= MAX_DELAY:
        yield FieldError("delay", f"{delay!r} is not a time from 0 s to 10 years")
    if run_at is not None:
        if not isinstance(run_at, datetime):
            yield FieldError("run_at", f"{run_at!r} is not a datetime; for seconds from now use delay")
        elif run_at.tzinfo is None or run_at.utcoffset() is None:
            yield FieldError("run_at", "the datetime has no time zone; give it one, e.g. datetime.now(UTC)")
        elif not 1970 < run_at.year < 9999:
            yield FieldError("run_at", f"the year {run_at.year} is out of range")
        if delay:
            yield FieldError("run_at", "given together with delay; leave one of them out")


def expiry_faults(expires: Any, delay: Any) -> Iterator[FieldError]:
    if expires is None:
        return
    if not is_number(expires) or not SHORTEST_S <= expires <= MAX_DELAY:
        yield FieldError("expires", f"{expires!r} is not a time from 1 µs to 10 years, counted from the enqueue")
    elif is_number(delay) and expires <= delay:
        text = f"it would expire after {expires} s and be due after {delay} s; give it a longer time, or None: it never expires"
        yield FieldError("expires", text)


def key_ttl_faults(key_ttl: Any, key: str | None) -> Iterator[FieldError]:
    if not is_number(key_ttl) or not (key_ttl in (_FOREVER, _UNTIL_START) or 0 <= key_ttl <= MAX_DELAY):
        known = "0 (while live), a time in seconds up to 10 years, 'forever' or 'start'"
        yield FieldError("key_ttl", f"{key_ttl!r} is not {known}")
    elif key_ttl and key is None:
        yield FieldError("key_ttl", "given without a key; add key=… or leave it out")


def debounce_faults(job: Timed) -> Iterator[FieldError]:
    """A debounced job is due when no other call with its key has come for so long. What else says when is refused."""
    wait = job.debounce
    if wait is None:
        if job.at_most is not None:
            yield FieldError("at_most", "given without debounce; add debounce=… or leave it out")
        return
    if not is_number(wait) or not SHORTEST_S <= wait <= MAX_DELAY:
        yield FieldError("debounce", f"{wait!r} is not a time from 1 µs to 10 years")
        return
    if job.at_most is not None and (not is_number(job.at_most) or not wait <= job.at_most <= MAX_DELAY):
        yield FieldError("at_most", f"{job.at_most!r} is not a time from debounce, {wait} s, up to 10 years")
    if job.key is None:
        yield FieldError("debounce", "given without a key; add key=…: the calls with one key become one job")
    if job.key_ttl not in (0, _UNTIL_START):
        yield FieldError("key_ttl", "the key of a debounced job is held until it starts; leave key_ttl out")
    if job.run_at is not None or job.delay not in (0, wait):
        field = "delay" if job.run_at is None else "run_at"
        yield FieldError(field, "given together with debounce, which says when the job is due; leave one of them out")
    if job.waits_for:
        yield _not_debounced("after")
    if job.batch is not None:
        yield _not_debounced("batch")


def refuse_debounce(debounce: float | None, field: str, why: str | None = None) -> None:
    """Refuse what is added to a job that is debounced, or such a job where it cannot be."""
    if debounce is not None:
        raise InvalidJob(_not_debounced(field) if why is None else FieldError(field, why))


def _not_debounced(field: str) -> FieldError:
    return FieldError(
        field, "given together with debounce; leave one of them out: other calls put the job off and replace its payload"
    )
