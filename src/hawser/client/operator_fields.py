"""Fields that an operator gives, each judged before anything is written."""

from __future__ import annotations

from datetime import datetime

from hawser.errors import ConfigError
from hawser.job import MAX_GROUP, MAX_PRIORITY
from hawser.store import MAX_PAGE
from hawser.value.name import name_fault, text_fault


def checked_group(group: object) -> str:
    """The name of a group of jobs."""
    if fault := text_fault(group, MAX_GROUP):
        raise ConfigError(f"group: {fault}")
    assert isinstance(group, str)
    return group


def checked_name(field: str, name: object) -> str:
    if fault := name_fault(name):
        raise ConfigError(f"{field}: {fault}")
    return str(name)


def checked_priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= MAX_PRIORITY:
        raise ConfigError(f"priority: {priority!r} is not a whole number from 0 to {MAX_PRIORITY}")
    return priority


def checked_time(field: str, when: datetime | None) -> datetime | None:
    if when is not None and (not isinstance(when, datetime) or when.utcoffset() is None):
        raise ConfigError(f"{field}: {when!r} is not a datetime with a time zone; use e.g. datetime.now(UTC)")
    return when


def checked_limit(limit: int) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_PAGE:
        raise ConfigError(f"limit: {limit!r} is not a whole number from 1 to {MAX_PAGE}; follow `next` for more")
    return limit
