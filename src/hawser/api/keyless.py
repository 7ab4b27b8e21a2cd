"""Callers without a key: which of them are admitted."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import ipaddress
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlencode

from hawser.api.identity import LOCAL, UNAUTHORISED, Identity
from hawser.api.peer import Ends, socket_of
from hawser.api.peer_process import speaks_for_itself
from hawser.api.problem import Problem

Scope = Mapping[str, Any]
Headers = Mapping[bytes, bytes]
Identify = Callable[[Scope], Identity | Awaitable[Identity | None] | None]

CONNECTION: Final = "hawser.connection"
"""Where our server keeps in a request's scope what it knows of the connection."""

_PROXIES: Final = (b"forwarded", b"via", b"x-real-ip", b"x-forwarded")
"""How the names of headers begin that proxies add."""


class Keyless(Protocol):
    """What becomes of a request without a key."""

    @property
    def token(self) -> str | None:
        """What may be sent in place of a key; printed when the server starts."""

    async def admit(self, scope: Scope, headers: Headers) -> Identity:
        """Who this is; a `Problem` when a key is needed."""


class Closed:
    """Every caller needs a key."""

    token = None

    def __init__(self, why: str = "a key is needed") -> None:
        self._why = why

    async def admit(self, scope: Scope, headers: Headers) -> Identity:  # noqa: ARG002  # all are treated alike
        text = f"{self._why}: send it as Authorization: Bearer KEY; make one with: hawser keys create"
        raise Problem(401, text, headers=UNAUTHORISED)


class Open:
    """Every caller may do everything: the application around this one has authenticated it."""

    token = None

    async def admit(self, scope: Scope, headers: Headers) -> Identity:  # noqa: ARG002  # all are treated alike
        refuse_other_origins(headers)
        return LOCAL


class Identified:
    """The application around this one says who asks."""

    token = None

    def __init__(self, identify: Identify) -> None:
        self._identify = identify
        self._closed = Closed("the application does not say who this is, so a key is needed")

    async def admit(self, scope: Scope, headers: Headers) -> Identity:
        found = self._identify(scope)
        if inspect.isawaitable(found):
            found = await found
        if found is None:
            return await self._closed.admit(scope, headers)
        if not isinstance(found, Identity):
            raise TypeError(f"identify answered {type(found).__name__}; it must return hawser.api.Identity(name, roles), or None")
        # A caller that is known by a cookie may be sent here by any page.
        refuse_other_origins(headers)
        return found


class OwnUser:
    """The user of this process, on this machine, may do everything, and so may a caller with the token.

    No address tells who is behind a proxy on the same machine. The kernel tells whose socket the other end is: a proxy's, as a
    rule, belongs to another user. One that runs as our own user is not taken for us, because its process listens for
    connections as well; or because it shows itself: by a header, by a `Host` that is not of this machine, or by HTTP/1.0.
    """

    def __init__(self, is_own: Callable[[Ends, Ends], bool] | None = None) -> None:
        self.token = secrets.token_urlsafe(24)
        self._asks = is_own or is_own_process

    async def admit(self, scope: Scope, headers: Headers) -> Identity:
        if b"token=" in scope["query_string"] and self._is_token(dict(_settings(scope["query_string"])).get("token", "")):
            return LOCAL
        if (given := headers.get(b"authorization")) is not None:
            scheme, _, text = given.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and self._is_token(text.strip()):
                return LOCAL
            raise Problem(401, "the key is unknown, expired or revoked", headers=UNAUTHORISED)
        if not await self._is_own(scope, headers):
            text = (
                "without a key only the user that runs this server may come in, from this machine, through no proxy, and from a "
                "process that listens for no connections itself, as a proxy does; "
                "send a key, or the token that the server printed at its start, as Authorization: Bearer …"
            )
            raise Problem(401, text, headers=UNAUTHORISED)
        refuse_other_names(scope, headers)
        refuse_other_origins(headers)
        return LOCAL

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    async def _is_own(self, scope: Scope, headers: Headers) -> bool:
        client, server = scope.get("client"), scope.get("server")
        if client is None or server is None or not is_loopback(client[0]) or scope.get("http_version") == "1.0":
            return False
        if any(name.startswith(_PROXIES) for name in headers):
            return False
        known = scope.get(CONNECTION)
        if known is None:
            return await asyncio.to_thread(self._asks, tuple(client), tuple(server))
        if known.own is None:
            known.own = await asyncio.to_thread(self._asks, tuple(client), tuple(server))
        return bool(known.own)


def is_own_process(peer: Ends, server: Ends) -> bool:
    """Whether a process of our own user is connected to the server, one that speaks for itself alone.

    It takes some milliseconds where many processes run; our server asks once for each connection.
    """
    found = socket_of(peer, server)
    return found is not None and found.user == os.geteuid() and speaks_for_itself(found.inode)


def without_token(query: bytes) -> bytes:
    """The query as the routes read it."""
    if b"token=" not in query:
        return query
    return urlencode([(name, value) for name, value in _settings(query) if name != "token"]).encode()


def _settings(query: bytes) -> list[tuple[str, str]]:
    return parse_qsl(query.decode("latin-1"), keep_blank_values=True)


def refuse_other_names(scope: Scope, headers: Headers) -> None:
    """A browser on this machine may show a page of another site that calls us, by a name that leads to us (DNS rebinding)."""
    host = headers.get(b"host", b"").decode("latin-1")
    name = _hostname(host)
    server = scope.get("server")
    if host and not is_loopback(name) and not (server is not None and name == server[0]):
        raise Problem(403, f"without a key this server answers to localhost, not to {name!r}; send a key")


def refuse_other_origins(headers: Headers) -> None:
    """A page of another origin may not act with what a browser knows of its user."""
    site = headers.get(b"sec-fetch-site")
    origin = headers.get(b"origin")
    host = headers.get(b"host", b"").decode("latin-1")
    foreign = site is not None and site not in (b"same-origin", b"none")
    if foreign or (origin is not None and origin.decode("latin-1").partition("://")[2] != host):
        raise Problem(403, "a page of another origin may not act here without a key")


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Whether this is an address of this machine that no other one can use."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
