"""Arguments whose values are never shown: what a task declares with `redact`. The store has them, and a run gets them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

import msgspec

from hawser.errors import ConfigError, did_you_mean
from hawser.job import Job

MASK: Final = "•••"
"""What stands for the value."""

_MASKED: Final = msgspec.Raw(msgspec.json.encode(MASK))


class Redacts(Protocol):
    """A task, as far as it matters here."""

    redact: tuple[str, ...]


def checked_redact(task: str, names: object, takes: Collection[str], labels: Collection[str]) -> tuple[str, ...]:
    """The parameters that a task declares as redacted; `ConfigError` when it has no such ones, or shows them elsewhere."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigError(f"task {task!r}: redact: {names!r} is not a list of names; use redact=['card']")
    found = tuple(dict.fromkeys(names))
    for name in found:
        if name not in takes:
            hint = did_you_mean(str(name), takes, f"it takes {', '.join(takes) or 'none'}")
            raise ConfigError(f"task {task!r}: redact: it has no parameter {name!r}; {hint}")
        if name in labels:
            raise ConfigError(
                f"task {task!r}: redact: {name!r} is what its jobs are found or grouped by, which is shown; leave one out"
            )
    return found


def redacted(names: Collection[str], body: bytes) -> bytes:
    """Arguments as they are shown. What cannot be read is not shown at all."""
    if not names:
        return body
    try:
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return bytes(_MASKED)
    return msgspec.json.encode({name: _MASKED if name in names else value for name, value in given.items()})


def restored(names: Collection[str], payload: Mapping[str, Any], stored: bytes) -> Mapping[str, Any]:
    """New arguments made from such as were shown: a mask that was left standing means the value that is stored."""
    if not names or not isinstance(payload, Mapping):
        return payload  # what is no object is refused elsewhere
    masked = [name for name in names if payload.get(name) == MASK]
    kept = msgspec.json.decode(stored) if masked else {}
    return {name: kept.get(name) if name in masked else value for name, value in payload.items()}


def names_of(tasks: Mapping[str, Redacts], task: str) -> tuple[str, ...]:
    """What the app's task of that name redacts; of a task that the app does not have nothing is known."""
    found = tasks.get(task)
    return () if found is None else found.redact


def shown(tasks: Mapping[str, Redacts], job: Job) -> Job:
    """The job as people see it."""
    names = names_of(tasks, job.task)
    return msgspec.structs.replace(job, body=redacted(names, job.body)) if names else job
