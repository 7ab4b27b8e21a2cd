"""A `postgresql://` URL: what the driver needs of it, and the settings that are ours."""

from __future__ import annotations

import re
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from hawser.errors import ConfigError, nearest
from hawser.store import Durability
from hawser.stores.url import without_password

OURS: Final = ("schema", "durability", "timeout", "connect_timeout", "wake", "pooled")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_LONGEST: Final = 3_600.0


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is and how it is reached."""

    dsn: str
    """For the driver; may name several hosts, of which the one that takes writes is used."""
    schema: str = "hawser"
    durability: Durability = "durable"
    timeout: float = 30.0
    """Seconds until a call gives up."""
    connect_timeout: float = 5.0
    """Seconds until one host is given up."""
    listen: bool = True
    """False: never LISTEN, only look (`wake=poll`)."""
    pooled: bool = False
    """Through a pooler in transaction mode: nothing is kept in the session."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The same for each host alone: the driver has one deadline for all, and a host that says nothing would use it up."""
        parts = urlsplit(self.dsn)
        user, at, hosts = parts.netloc.rpartition("@")
        return tuple(urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(","))

    @property
    def where(self) -> str:
        """The server in words, without a password."""
        parts = urlsplit(without_password(self.dsn))
        host = parts.netloc.rpartition("@")[2]
        hosts = dict(parse_qsl(parts.query)).get("host")
        return f"PostgreSQL at {host or hosts or 'the local socket'}{parts.path}"


def parse(url: str) -> Address:
    """The address in a URL; what is wrong with it is said by name."""
    parts = urlsplit(url)
    settings = parse_qsl(parts.query, keep_blank_values=True)
    ours: dict[str, Any] = {name: value for name, value in settings if name in OURS}
    rest = [(name, value) for name, value in settings if name not in OURS]
    if "," in parts.netloc and "target_session_attrs" not in dict(rest):
        rest.append(("target_session_attrs", "read-write"))
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), ""))
    schema = ours.get("schema", "hawser")
    if _SCHEMA.fullmatch(schema) is None:
        raise ConfigError(f"store: schema={schema!r} is not a name: use up to 48 lower-case letters, digits and '_'")
    return Address(
        dsn=dsn,
        schema=schema,
        durability=cast("Durability", _one_of("durability", ours, "durable", "relaxed")),
        timeout=_seconds("timeout", ours, 30.0),
        connect_timeout=_seconds("connect_timeout", ours, 5.0),
        listen=_one_of("wake", ours, "listen", "poll") == "listen",
        pooled=_one_of("pooled", ours, "no", "yes") == "yes",
    )


def unknown_setting(name: str) -> ConfigError:
    """Our error for a setting in the URL that is neither ours nor the driver's, and that the server does not know."""
    near = nearest(name, OURS)
    hint = f"did you mean {near[0]}?" if near else f"ours are {', '.join(OURS)}, and the server knows no parameter of that name"
    return ConfigError(f"store: unknown setting {name!r} in the URL; {hint}")


def _one_of(name: str, settings: dict[str, Any], *known: str) -> str:
    value = settings.get(name, known[0])
    if value not in known:
        raise ConfigError(f"store: {name}={value!r} is not known; use {' or '.join(known)}")
    return str(value)


def _seconds(name: str, settings: dict[str, Any], usual: float) -> float:
    try:
        seconds = float(settings.get(name, usual))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST:
        raise ConfigError(f"store: {name}={settings[name]!r} is not a time in seconds above 0 and up to {_LONGEST:g}")
    return seconds
