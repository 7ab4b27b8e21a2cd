"""How the API behaves: its limits and who may come in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypedDict
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from hawser.errors import ConfigError, did_you_mean
from hawser.job import MAX_ATTEMPTS


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option with its unit, its default and what changing it costs."""

    require_key: bool = False
    """Every caller needs a key. That is the default; together with `identify` or `open` it is refused."""

    identify: Any = None
    """A function, `async` or not, that is given the ASGI scope and returns `hawser.api.Identity(name, roles)`, or None for
    a caller who needs a key: for an application that knows its users."""

    open: bool = False
    """Every caller that reaches the API may do everything. Only where the application around it authenticates callers."""

    read_only: bool = False
    """Nothing can be changed: no enqueue, no claim, no action."""

    max_body: Annotated[int, Meta(ge=1)] = 256 * 1024
    """Bytes of a body. More lets one caller hold more memory; a payload has a limit of its own, the app's `max_payload`."""

    max_batch_body: Annotated[int, Meta(ge=1)] = 8 * 1024 * 1024
    """Bytes of a body that may carry many jobs or outcomes."""

    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] = 100
    """Attempts that a caller may ask for. More lets one bad job come back for longer. Tasks and queues may say more."""

    max_waiting: Annotated[int, Meta(ge=1)] = 1_000_000
    """Jobs that may wait in a queue without a limit of its own; then callers get 429. More lets one producer fill the store."""

    deadline: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """Seconds that a request may take, its body included; a claim may wait besides. Less gives up on a slow store sooner."""

    max_wait: Annotated[float, Meta(ge=0, le=60)] = 60.0
    """Seconds that a claim waits at the longest, also when it asks for more. Set it below the patience of a proxy in between."""

    access_log: bool = False
    """Log a line for every request that ends, at level info as `hawser.access`. Of a busy server that is a lot."""

    public_url: str | None = None
    """Where browsers find this API, for example https://jobs.example.com/hawser: pages of that origin alone may act with a
    session, and on https its cookie is `Secure`. Without it Host and scheme of the request count, as the proxy sends them."""

    upkeep: bool = True
    """Take back leases that ran out, prune, and tell of HTTP workers. Without it, HTTP workers alone would lose jobs of a
    crashed one."""


class ApiSettings(TypedDict, total=False):
    """What `app.asgi(…)` takes by keyword; `ApiOptions` says what each means."""

    require_key: bool
    identify: Callable[[Mapping[str, Any]], Any] | None
    open: bool
    read_only: bool
    max_body: int
    max_batch_body: int
    max_attempts: int
    max_waiting: int
    deadline: float
    max_wait: float
    access_log: bool
    public_url: str | None
    upkeep: bool


def checked(settings: Mapping[str, Any]) -> ApiOptions:
    """Options, each checked; `ConfigError` names the one that is wrong."""
    for name in settings:
        if name not in ApiOptions.__struct_fields__:
            raise ConfigError(f"{name}: the API has no such option; {did_you_mean(name, ApiOptions.__struct_fields__)}")
    try:
        options = msgspec.convert(dict(settings), ApiOptions)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`")
        raise ConfigError(f"{field}: {text}; it is {settings.get(field)!r}") from None
    if options.public_url is not None:
        check_public_url(options.public_url)
    if options.identify is not None and not callable(options.identify):
        raise ConfigError(f"identify: {type(options.identify).__name__} is not a function; give one that takes the ASGI scope")
    if sum((options.require_key, options.identify is not None, options.open)) > 1:
        raise ConfigError("require_key, identify, open: they exclude each other; give one of them")
    return options


def check_public_url(url: str) -> None:
    """Raise `ConfigError` for what a browser could not have in its address bar."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or "@" in url or "?" in url or "#" in url or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(
            f"public_url: {url!r} is not where a browser finds a page; use for example https://jobs.example.com/hawser"
        )


def host_of(public_url: str) -> bytes:
    """What stands in the Origin of its pages, behind the scheme."""
    parts = urlsplit(public_url)
    usual = {"http": 80, "https": 443}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}{'' if parts.port in (None, usual) else f':{parts.port}'}".encode()
