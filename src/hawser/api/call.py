"""One request as a handler gets it, and what it may answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from hawser.store import Actor, Filter, Store

if TYPE_CHECKING:
    from hawser.api.identity import Identity
    from hawser.api.server import Api
    from hawser.app import Hawser

B = TypeVar("B")
Q = TypeVar("Q")


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing is sent; an empty object may be."""


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Call(Generic[B, Q]):
    """Who asks for what."""

    __slots__ = ("api", "body", "gone", "identity", "path", "query", "scope", "store")

    def __init__(
        self,
        api: Api,
        store: Store,
        identity: Identity,
        path: Mapping[str, str],
        query: Q,
        body: B,
        scope: Mapping[str, Any],
        gone: asyncio.Event,
    ) -> None:
        self.api = api
        self.store = store
        self.identity = identity
        self.path = path
        self.query = query
        self.body = body
        self.scope = scope
        """The request as ASGI tells it."""
        self.gone = gone
        """Set when the caller has hung up. Only watched for routes that wait."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        return dict(self.scope["headers"])

    @property
    def app(self) -> Hawser:
        return self.api.app

    def actor(self, reason: str | None = None, filter: Filter | None = None, operation: str | None = None) -> Actor:
        """For the audit record."""
        return Actor(self.identity.name, reason, None if filter is None else filter.told(), operation)


class Answer(msgspec.Struct, frozen=True):
    """A value to be sent as JSON."""

    value: Any
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Text(msgspec.Struct, frozen=True):
    """Text that is not JSON."""

    body: bytes
    media_type: str


class Stream(msgspec.Struct, frozen=True):
    """Server-sent events, or a file in parts, until the caller or the server ends it."""

    chunks: AsyncGenerator[bytes]
    close: Callable[[], None]
    """To be called when it has ended, also when nothing of it was sent."""
    media_type: str = "text/event-stream"
    headers: tuple[tuple[bytes, bytes], ...] = ()
