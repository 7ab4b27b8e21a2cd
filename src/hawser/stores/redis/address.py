"""A `redis://` URL: where the server is, and the settings that are ours."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl, unquote

import msgspec

from hawser.errors import ConfigError, did_you_mean
from hawser.store import Durability
from hawser.stores.url import check_password, one_of, seconds, split

OURS: Final = (
    *("namespace", "durability", "trust", "replicas", "timeout", "connect_timeout", "db", "done_most"),
    *("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"),
)
_NAMESPACE = re.compile(r"[A-Za-z0-9_.\-]{1,48}")
_PORT: Final = 6379

Scheme = Literal["redis", "rediss", "unix"]


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is and how it is reached."""

    scheme: Scheme
    host: str = "localhost"
    port: int = _PORT
    path: str = ""
    """The socket of `unix://`."""
    db: int = 0
    user: str | None = None
    password: str | None = None
    namespace: str = "hawser"
    durability: Durability = "durable"
    trusted: bool = False
    """The server does not let us read its settings; the operator says that it syncs before it answers (`trust=always`)."""
    replicas: int = 0
    """Replicas that must have a write before it counts as done."""
    done_most: int = 100_000
    """Done jobs that are kept at most, whatever their retention: all of them are in memory."""
    timeout: float = 30.0
    """Seconds until a call gives up."""
    connect_timeout: float = 5.0
    tls: dict[str, str] = {}
    """Files: `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`."""

    @property
    def prefix(self) -> str:
        """What every key begins with: one hash tag, so that all keys are in one slot."""
        return f"{{{self.namespace}}}:"

    @property
    def where(self) -> str:
        """The server in words, without a password."""
        place = self.path if self.scheme == "unix" else f"{self.host}:{self.port}"
        return f"Redis at {place}/{self.db}"


def parse(url: str) -> Address:
    """The address in a URL; what is wrong with it is said by name."""
    check_password(url)
    parts = split(url)
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in settings:
        if name not in OURS:
            raise ConfigError(f"store: unknown setting {name!r} in the URL; {did_you_mean(name, OURS)}")
    user, _, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    scheme = cast("Scheme", parts.scheme)
    namespace = settings.get("namespace", "hawser")
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigError(f"store: namespace={namespace!r} is not a name: use up to 48 letters, digits, '_', '.' and '-'")
    if "," in host:
        raise ConfigError("store: the URL names several hosts; write the one that takes writes")
    return Address(
        scheme=scheme,
        **_place(scheme, host, parts.path),
        db=_database(scheme, parts.path, settings),
        user=unquote(name) or None,
        password=unquote(password) or None,
        namespace=namespace,
        durability=cast("Durability", one_of("durability", settings, "durable", "relaxed")),
        trusted=one_of("trust", settings, "", "always") == "always",
        replicas=_whole("replicas", settings.get("replicas", "0"), 100),
        done_most=_whole("done_most", settings.get("done_most", "100000"), 10**9),
        timeout=seconds("timeout", settings, 30.0),
        connect_timeout=seconds("connect_timeout", settings, 5.0),
        tls={name: value for name, value in settings.items() if name.startswith("ssl_")},
    )


def _place(scheme: Scheme, host: str, path: str) -> dict[str, Any]:
    if scheme == "unix":
        if not path.startswith("/") or path == "/":
            raise ConfigError("store: the URL names no socket; use for example unix:///run/redis/redis.sock")
        return {"path": unquote(path)}
    bare = re.sub(r"^\[([^\]]*)\]", "", host)
    name, _, port = bare.partition(":")
    name = host[1 : host.index("]")] if host.startswith("[") else name
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        # Not quoted: when the host was forgotten it is a password.
        raise ConfigError("store: the port in the URL is not a number; use for example redis://host:6379/0")
    return {"host": name or "localhost", "port": int(port) if port else _PORT}


def _database(scheme: Scheme, path: str, settings: dict[str, str]) -> int:
    text = settings.get("db", "0") if scheme == "unix" else path.strip("/") or settings.get("db", "0")
    return _whole("db", text, 65_535)


def _whole(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise ConfigError(f"store: {name}={text!r} is not a whole number from 0 to {most}")
    return int(text)
