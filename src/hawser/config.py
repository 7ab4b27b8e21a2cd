"""The settings of an app: from arguments, else from the environment, else the defaults below."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict, get_type_hints

import msgspec
from msgspec import Meta

from hawser.errors import ConfigError, nearest
from hawser.payload import MAX_PAYLOAD
from hawser.store import Retention

PREFIX: Final = "HAWSER_"
MAX_RETENTION: Final = 100 * 365 * 86_400.0


class Settings(TypedDict, total=False):
    """What `Hawser(…)` takes by keyword; `Config` says what each means."""

    max_payload: int
    retention: Retention
    enqueue_tries: int
    enqueue_retry_after: float


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting with its unit, its default and what changing it costs. HAWSER_MAX_PAYLOAD sets `max_payload`, and so on."""

    store: str = "sqlite:///hawser.db"
    """URL of the store. The default is a file in the working directory: good for one machine. HAWSER_STORE."""

    max_payload: Annotated[int, Meta(ge=2, le=16 * 1024 * 1024)] = MAX_PAYLOAD
    """Bytes of JSON that a job's arguments may have, 64 KiB. More makes every claim, backup and replication heavier; a
    reference to the data is nearly always better. All producers of a store should agree."""

    retention: Retention = msgspec.field(default_factory=Retention)
    """Seconds that finished jobs are kept: done 7 days, dead 30, cancelled 7. Longer grows the store; shorter loses history,
    and dead letters before anybody saw them. In the environment as JSON: {"done": 3600}. A task may have its own."""

    enqueue_tries: Annotated[int, Meta(ge=1, le=100)] = 3
    """How often an enqueue is sent when its answer gets lost, always with the same ids, so it stays one job. More rides out
    longer cuts, and keeps the caller waiting as much longer."""

    enqueue_retry_after: Annotated[float, Meta(ge=0, le=60)] = 0.1
    """Seconds before the second try, doubled before each further one. Less hammers a store that is coming back."""


def load(arguments: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Config:
    """The settings; `ConfigError` names the one that is wrong. An argument that is None counts as not given.

    Unknown arguments are refused. Unknown variables are not: Kubernetes puts HAWSER_PORT and the like into every pod
    beside a service called hawser.
    """
    types = get_type_hints(Config, include_extras=True)
    values: dict[str, Any] = {}
    for name, kind in types.items():
        variable = PREFIX + name.upper()
        if arguments.get(name) is not None:
            values[name] = _convert(name, arguments[name], kind)
        elif text := environ.get(variable):
            values[name] = _parse(variable, text, kind)
    for name in arguments:
        if name not in types:
            near = nearest(name, types)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(types)}"
            raise ConfigError(f"{name}: no such setting; {hint}")
    return Config(**values)


def checked_retention(field: str, value: object) -> Retention:
    """A retention whose times can be kept; `ConfigError` names the field and the part of it that is wrong."""
    if isinstance(value, Retention):
        value = msgspec.structs.asdict(value)
    if not isinstance(value, Mapping) or not value.keys() <= set(Retention.__struct_fields__):
        raise ConfigError(f"{field}: {value!r} is not a Retention(done=…, dead=…, cancelled=…) in seconds")
    for name, seconds in value.items():
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds <= MAX_RETENTION:
            raise ConfigError(f"{field}.{name}: {seconds!r} is not a time from 0 s to 100 years, in seconds")
    return Retention(**value)


def _convert(name: str, value: Any, kind: Any) -> Any:
    if kind is Retention:
        return checked_retention(name, value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}; it is {value!r}") from None


def _parse(variable: str, text: str, kind: Any) -> Any:
    try:
        if kind is Retention:
            return checked_retention(variable, msgspec.json.decode(text))
        return msgspec.convert(text, kind, strict=False)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{variable}: {error}; the environment says {text!r}") from None
