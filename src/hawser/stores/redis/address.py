"""A `redis://` URL: where the server is, and the settings that are ours."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl, unquote

import msgspec

from hawser.errors import ConfigError, did_you_mean
from hawser.store import Durability
from hawser.stores.url import check_password, one_of, seconds, split

REDIS_URL_SETTINGS: Final = (
    *("namespace", "lanes", "durability", "trust", "replicas", "timeout", "connect_timeout", "db", "done_most"),
    *("master", "sentinel_user", "sentinel_password"),
    *("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"),
)
_OF_THE_USER: Final = frozenset(("user", "username", "password", "passwd", "pass", "auth"))
"""Settings that others write into a URL. Here they stand in front of the host, and those of sentinels are not meant."""

_NAMESPACE = re.compile(r"[A-Za-z0-9_.\-]{1,48}")
_REDIS_PORT: Final = 6379
_SENTINEL_PORT: Final = 26_379

Scheme = Literal["redis", "rediss", "unix"]
LaneKind = Literal["lists", "streams"]
"""What new jobs that may run at once wait in."""


class Sentinels(msgspec.Struct, frozen=True, kw_only=True):
    """Those who know which server takes writes."""

    master: str
    """What they call it."""
    hosts: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = None


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is and how it is reached."""

    scheme: Scheme
    host: str = "localhost"
    port: int = _REDIS_PORT
    path: str = ""
    """The socket of `unix://`."""
    sentinels: Sentinels | None = None
    """Asked for host and port at each connect."""
    db: int = 0
    user: str | None = None
    password: str | None = None
    namespace: str = "hawser"
    lanes: LaneKind = "lists"
    durability: Durability = "durable"
    trusted: bool = False
    """The server does not let us read its settings; the operator says that it syncs before it answers (`trust=always`)."""
    replicas: int = 0
    """Replicas that must have a write before it counts as done."""
    done_most: int = 100_000
    """Done jobs that are kept at most, also within their retention: all of them are in memory."""
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
        if self.sentinels is not None:
            return f"Redis {self.sentinels.master!r} of the sentinels at {self.host}/{self.db}"
        place = self.path if self.scheme == "unix" else f"{self.host}:{self.port}"
        return f"Redis at {place}/{self.db}"


def parse(url: str) -> Address:
    """The address in a URL; what is wrong with it is said by name."""
    check_password(url)
    parts = split(url)
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in settings:
        if name not in REDIS_URL_SETTINGS:
            raise _unknown(name)
    user, _, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    scheme = cast("Scheme", parts.scheme)
    namespace = settings.get("namespace", "hawser")
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigError(f"store: namespace={namespace!r} is not a name: use up to 48 letters, digits, '_', '.' and '-'")
    return Address(
        scheme=scheme,
        **_place(scheme, host, parts.path, settings),
        db=_database(scheme, parts.path, settings),
        user=unquote(name) or None,
        password=unquote(password) or None,
        namespace=namespace,
        lanes=cast("LaneKind", one_of("lanes", settings, "lists", "streams")),
        durability=cast("Durability", one_of("durability", settings, "durable", "relaxed")),
        trusted=one_of("trust", settings, "", "always") == "always",
        replicas=_whole("replicas", settings.get("replicas", "0"), 100),
        done_most=_whole("done_most", settings.get("done_most", "100000"), 10**9),
        timeout=seconds("timeout", settings, 30.0),
        connect_timeout=seconds("connect_timeout", settings, 5.0),
        tls={name: value for name, value in settings.items() if name.startswith("ssl_")},
    )


def _unknown(name: str) -> ConfigError:
    hint = did_you_mean(name, REDIS_URL_SETTINGS)
    if name.lower() in _OF_THE_USER:
        hint = "write user and password in front of the host, as in redis://user:password@host:6379/0"
    return ConfigError(f"store: unknown setting {name!r} in the URL; {hint}")


def _place(scheme: Scheme, host: str, path: str, settings: dict[str, str]) -> dict[str, Any]:
    if scheme == "unix":
        if not path.startswith("/") or path == "/":
            raise ConfigError("store: the URL names no socket; use for example unix:///run/redis/redis.sock")
        if "master" in settings:
            raise ConfigError("store: sentinels are not reached by a socket; use for example redis://a,b,c/0?master=NAME")
        return {"path": unquote(path)}
    master = settings.get("master")
    if master is None:
        for name in ("sentinel_user", "sentinel_password"):
            if name in settings:
                raise ConfigError(f"store: {name} is given, but no sentinel is asked; add master=NAME to the URL")
        if "," in host:
            raise ConfigError(
                "store: the URL names several hosts; write the one that takes writes, or name the primary that they know with "
                "master=NAME if they are sentinels"
            )
        name, port = _host(host, _REDIS_PORT)
        return {"host": name, "port": port}
    if not master:
        raise ConfigError("store: master= is empty; write the name by which the sentinels know the primary")
    hosts = tuple(_host(each, _SENTINEL_PORT) for each in host.split(","))
    user, password = settings.get("sentinel_user"), settings.get("sentinel_password")
    return {"host": host, "sentinels": Sentinels(master=master, hosts=hosts, user=user, password=password)}


def _host(text: str, usual: int) -> tuple[str, int]:
    bare = re.sub(r"^\[([^\]]*)\]", "", text)
    name, _, port = bare.partition(":")
    name = text[1 : text.index("]")] if text.startswith("[") else name
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        # Not quoted: when the host was forgotten it is a password.
        raise ConfigError("store: the port in the URL is not a number; use for example redis://host:6379/0")
    return name or "localhost", int(port) if port else usual


def _database(scheme: Scheme, path: str, settings: dict[str, str]) -> int:
    text = settings.get("db", "0") if scheme == "unix" else path.strip("/") or settings.get("db", "0")
    return _whole("db", text, 65_535)


def _whole(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise ConfigError(f"store: {name}={text!r} is not a whole number from 0 to {most}")
    return int(text)
