"""An event on its way into a store: pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from hawser.clock import MAX_DELAY
from hawser.errors import FieldError, InvalidJob
from hawser.store import EVENT_KEPT, MAX_EVENT, MAX_EVENT_NAME
from hawser.value.json_value import check_json, to_json
from hawser.value.name import text_fault


class NewEvent(NamedTuple):
    """An event on its way into a store, every field checked."""

    name: str
    body: bytes
    keep: float


def new_event(name: object, body: Any, keep: object) -> NewEvent:
    """An event whose body is any value that can be written as JSON; `InvalidJob` names the field that is wrong."""
    checked = checked_event_name(name)
    return NewEvent(checked, to_json("body", body, MAX_EVENT), _checked_keep(keep))


def event_from_json(name: object, body: bytes, keep: object = EVENT_KEPT) -> NewEvent:
    """The same of a body that came as JSON text."""
    checked = checked_event_name(name)
    check_json("body", body, MAX_EVENT)
    return NewEvent(checked, body, _checked_keep(keep))


def checked_event_name(name: object) -> str:
    """The name of an event."""
    if fault := text_fault(name, MAX_EVENT_NAME):
        raise InvalidJob(FieldError("name", fault))
    assert isinstance(name, str)
    return name


def _checked_keep(keep: object) -> float:
    seconds = keep.total_seconds() if isinstance(keep, timedelta) else keep
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_DELAY:
        raise InvalidJob(FieldError("keep", f"{keep!r} is not a time above 0 s and up to 10 years"))
    return float(seconds)
