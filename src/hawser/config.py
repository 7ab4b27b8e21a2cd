"""The settings of an app: from arguments, else from the environment, else the defaults below."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypedDict, get_type_hints

import msgspec
from msgspec import Meta

from hawser.errors import ConfigError, did_you_mean, nearest
from hawser.store import Retention
from hawser.value.payload import MAX_PAYLOAD

VARIABLE_PREFIX: Final = "HAWSER_"
READ_ELSEWHERE: Final = tuple(VARIABLE_PREFIX + name for name in ("CHILD", "DEBUG", "WORKER_", "SERVE_", "LAB_", "TEST_"))
"""What variables begin with that are read elsewhere."""

_OF_A_SERVICE: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
"""How a variable ends that Kubernetes puts into every pod beside a service: HAWSER_PORT, HAWSER_SERVICE_HOST and the like."""

AppVersion = Annotated[str, Meta(min_length=1, max_length=100)]

MAX_RETENTION: Final = 100 * 365 * 86_400.0


class Settings(TypedDict, total=False):
    """What `Hawser(…)` takes by keyword; `Config` says what each means."""

    max_payload: int
    retention: Retention
    enqueue_tries: int
    enqueue_retry_after: float
    app_version: str | None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting with its unit, its default and what changing it costs. HAWSER_MAX_PAYLOAD sets `max_payload`, and so on."""

    store: str = "sqlite:///hawser.db"
    """URL of the store. The default is a file in the working directory: good for one machine. HAWSER_STORE."""

    max_payload: Annotated[int, Meta(ge=2, le=16 * 1024 * 1024)] = MAX_PAYLOAD
    """Bytes of JSON that a job's arguments may have, 64 KiB. More makes every claim, backup and replication heavier; a
    reference to the data is nearly always better. All producers of a store should agree."""

    retention: Retention | None = None
    """Seconds that finished jobs are kept. None leaves it to the store: done 7 days, dead 30, cancelled 7; in Redis done 1 hour,
    dead 30 days, cancelled 1. Longer grows the store; shorter loses history, and dead letters before an operator saw them. In the
    environment as JSON: {"done": 3600}. A task may have its own."""

    enqueue_tries: Annotated[int, Meta(ge=1, le=100)] = 3
    """How often an enqueue is sent when its answer gets lost, always with the same ids, so it stays one job. More rides out
    longer cuts, and keeps the caller waiting as much longer."""

    enqueue_retry_after: Annotated[float, Meta(ge=0, le=60)] = 0.1
    """Seconds before the second try, doubled before each further one. Less hammers a store that is coming back."""

    app_version: AppVersion | None = None
    """What your deploys call this version of the app, such as a tag or a commit. Workers tell it; when another one begins to
    work, charts get a mark and dead letters say since which they die. HAWSER_APP_VERSION."""


def load(arguments: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Config:
    """The settings; `ConfigError` names the one that is wrong. An argument that is None counts as not given.

    Unknown arguments are refused, and so are variables that look like a misspelt setting. Other variables that begin
    with HAWSER_ are left alone: they may belong to the deployment, and Kubernetes makes some of its own.
    """
    types = get_type_hints(Config, include_extras=True)
    values: dict[str, Any] = {}
    for name, kind in types.items():
        variable = VARIABLE_PREFIX + name.upper()
        if arguments.get(name) is not None:
            values[name] = _convert(name, arguments[name], kind)
        elif text := environ.get(variable):
            values[name] = _parse(variable, text, kind)
    for name in arguments:
        if name not in types:
            raise ConfigError(f"{name}: no such setting; {did_you_mean(name, types)}")
    for variable in strays(VARIABLE_PREFIX, types, environ):
        if not variable.startswith(READ_ELSEWHERE) and nearest(variable.removeprefix(VARIABLE_PREFIX).lower(), types):
            raise unknown_variable(variable, VARIABLE_PREFIX, types)
    return Config(**values)


def strays(prefix: str, options: Iterable[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Variables with this prefix that no option has, without those that Kubernetes makes for a service of that name."""
    known = {prefix + option.upper() for option in options}
    return [name for name in environ if name.startswith(prefix) and name not in known and not _OF_A_SERVICE.search(name)]


def unknown_variable(name: str, prefix: str, options: Iterable[str]) -> ConfigError:
    """Our error for a variable of `strays`."""
    # Compared without the prefix, which would make all of them look alike.
    hint = did_you_mean(name.removeprefix(prefix).lower(), options, spelt=lambda option: prefix + option.upper())
    return ConfigError(f"{name}: no such variable; {hint}")


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
    if kind == Retention | None:
        return checked_retention(name, value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}; it is {value!r}") from None


def _parse(variable: str, text: str, kind: Any) -> Any:
    try:
        if kind == Retention | None:
            return checked_retention(variable, msgspec.json.decode(text))
        return msgspec.convert(text, kind, strict=False)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{variable}: {error}; the environment says {text!r}") from None
