"""A step as the stores read it back."""

from __future__ import annotations

from typing import Any

from hawser.clock import at
from hawser.store import RecordedStep


def step_of(row: Any, now: int) -> RecordedStep:
    """From name, kind, value, time of the record, lease, end of the sleep or wait and event, in that order."""
    name, kind, value, recorded_at, lease, until, event = row
    left = 0.0 if until is None else max(0, until - now) / 1_000_000
    return RecordedStep(
        name=name,
        kind=kind,
        value_body=bytes(value),
        at=at(recorded_at),
        lease=lease,
        until=None if until is None else at(until),
        left=left,
        event=event,
    )
