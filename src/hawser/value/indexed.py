"""Arguments that jobs are found by: what a task declares as indexed, as texts `name=value`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from hawser.errors import ConfigError, FieldError, InvalidJob, did_you_mean
from hawser.value.name import text_fault

MAX_INDEXED: Final = 3
"""Arguments of one task: each is an entry of an index for every job of it."""

MAX_ENTRY: Final = 256
"""Characters of a name and its value."""


def index_faults(index: object) -> Iterator[FieldError]:
    """What is wrong with the index of a job."""
    if not isinstance(index, tuple) or not all(isinstance(each, str) and "=" in each for each in index):
        yield FieldError("index", f"{index!r} is not a tuple of texts name=value")
    elif len(index) > MAX_INDEXED:
        yield FieldError("index", f"{len(index)} arguments; at most {MAX_INDEXED}")
    else:
        for each in index:
            if fault := text_fault(each, MAX_ENTRY):
                yield FieldError("index", fault)


def checked_index(task: str, names: object, takes: Collection[str]) -> tuple[str, ...]:
    """The parameters that a task declares as indexed; `ConfigError` when it has no such ones."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigError(f"task {task!r}: index: {names!r} is not a list of names; use index=['user_id']")
    found = tuple(dict.fromkeys(names))
    if len(found) > MAX_INDEXED:
        raise ConfigError(f"task {task!r}: index: {len(found)} parameters; at most {MAX_INDEXED} can be indexed")
    for name in found:
        if name not in takes:
            hint = did_you_mean(str(name), takes, f"it takes {', '.join(takes) or 'none'}")
            raise ConfigError(f"task {task!r}: index: it has no parameter {name!r}; {hint}")
    return found


def index_of(names: Collection[str], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The entries of a job with these arguments; one that is None has none."""
    entries = []
    for name in names:
        value = arguments.get(name)
        if value is None:
            continue
        text = text_of_value(value)
        if text is None:
            kind = type(value).__name__
            raise InvalidJob(FieldError(name, f"a value of type {kind} cannot be indexed; use a text, a whole number or a UUID"))
        if fault := text_fault(f"{name}={text}", MAX_ENTRY):
            raise InvalidJob(FieldError(name, f"it is indexed, and its text is not fit for that: {fault}"))
        entries.append(f"{name}={text}")
    return tuple(entries)


def text_of_value(value: Any) -> str | None:
    """A value as an index has it, the same in Python, in JSON and in an address; None when it has no such text."""
    plain = value if isinstance(value, str | bool | int) else msgspec.to_builtins(value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return str(plain) if isinstance(plain, str | int) else None


def entry_of(argument: object) -> str:
    """What to find by: `{"user_id": 42}`, or the text `user_id=42`."""
    if isinstance(argument, str) and "=" in argument[1:]:
        return argument
    if isinstance(argument, Mapping) and len(argument) == 1:
        [(name, value)] = argument.items()
        if isinstance(name, str) and name and (text := text_of_value(value)) is not None:
            return f"{name}={text}"
    raise ConfigError(f"argument: {argument!r} is not one argument and its value; use argument={{'user_id': 42}}")


def refuse_unindexed(entry: str, indexed: Collection[str]) -> None:
    """`ConfigError` when no task of an app declares the argument: the search would find nothing, with any jobs."""
    name = entry.partition("=")[0]
    if name not in indexed:
        known = f"known are {', '.join(sorted(indexed))}" if indexed else "no task declares any"
        raise ConfigError(f"argument: no task declares {name!r} as indexed; {known}: @app.task(index=[{name!r}])")
