"""How the API behaves: its limits and who may come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from hawser.errors import ConfigError


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option with its unit, its default and what changing it costs."""

    require_key: bool = False
    """False: callers on this machine need no key, unless a proxy speaks for them. True: everybody needs one."""

    max_body: Annotated[int, Meta(ge=1)] = 256 * 1024
    """Bytes of a body. More lets one caller hold more memory; a payload has a limit of its own, the app's `max_payload`."""

    max_batch_body: Annotated[int, Meta(ge=1)] = 8 * 1024 * 1024
    """Bytes of a body that may carry many jobs or outcomes."""

    deadline: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """Seconds that a request may take, its body included; a claim may wait besides. Less gives up on a slow store sooner."""

    max_wait: Annotated[float, Meta(ge=0, le=60)] = 60.0
    """Seconds that a claim waits at the longest, whatever it asks for. Set it below the patience of a proxy in between."""

    upkeep: bool = True
    """Take back leases that ran out, prune, and tell of HTTP workers. Without it, HTTP workers alone would lose jobs of a
    crashed one."""


class ApiSettings(TypedDict, total=False):
    """What `app.asgi(…)` takes by keyword; `ApiOptions` says what each means."""

    require_key: bool
    max_body: int
    max_batch_body: int
    deadline: float
    max_wait: float
    upkeep: bool


def checked(settings: Mapping[str, Any]) -> ApiOptions:
    """Options, each checked; `ConfigError` names the one that is wrong."""
    for name in settings:
        if name not in ApiOptions.__struct_fields__:
            raise ConfigError(f"{name}: the API has no such option; known are {', '.join(ApiOptions.__struct_fields__)}")
    try:
        return msgspec.convert(dict(settings), ApiOptions)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`")
        raise ConfigError(f"{field}: {text}; it is {settings.get(field)!r}") from None
