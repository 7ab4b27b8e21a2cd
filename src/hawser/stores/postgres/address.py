"""A `postgresql://` URL: what the driver needs of it, and the settings that are ours."""

from __future__ import annotations

import re
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from hawser.errors import ConfigError, did_you_mean
from hawser.store import Durability
from hawser.stores.url import check_password, one_of, seconds, split, without_password

POSTGRES_SETTINGS: Final = ("schema", "durability", "timeout", "connect_timeout", "wake", "pooled")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")


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
    check_password(url)
    parts = split(url)
    _check_ports(parts.netloc)
    settings = parse_qsl(parts.query, keep_blank_values=True)
    ours: dict[str, Any] = {name: value for name, value in settings if name in POSTGRES_SETTINGS}
    rest = [(name, value) for name, value in settings if name not in POSTGRES_SETTINGS]
    if "," in parts.netloc and "target_session_attrs" not in dict(rest):
        rest.append(("target_session_attrs", "read-write"))
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), ""))
    schema = ours.get("schema", "hawser")
    if _SCHEMA.fullmatch(schema) is None:
        raise ConfigError(f"store: schema={schema!r} is not a name: use up to 48 lower-case letters, digits and '_'")
    return Address(
        dsn=dsn,
        schema=schema,
        durability=cast("Durability", one_of("durability", ours, "durable", "relaxed")),
        timeout=seconds("timeout", ours, 30.0),
        connect_timeout=seconds("connect_timeout", ours, 5.0),
        listen=one_of("wake", ours, "listen", "poll") == "listen",
        pooled=one_of("pooled", ours, "no", "yes") == "yes",
    )


def _check_ports(netloc: str) -> None:
    for host in netloc.rpartition("@")[2].split(","):
        port = re.sub(r"^\[[^\]]*\]", "", host).partition(":")[2]
        if port and not (port.isascii() and port.isdigit() and int(port) < 65_536):
            # Not quoted: when the host was forgotten it is a password.
            raise ConfigError("store: the port in the URL is not a number; use for example postgresql://user@host:5432/database")


def unknown_setting(name: str) -> ConfigError:
    """Our error for a setting in the URL that is neither ours nor the driver's, and that the server does not know."""
    rest = f"ours are {', '.join(POSTGRES_SETTINGS)}, and the server knows no parameter of that name"
    return ConfigError(f"store: unknown setting {name!r} in the URL; {did_you_mean(name, POSTGRES_SETTINGS, rest)}")
