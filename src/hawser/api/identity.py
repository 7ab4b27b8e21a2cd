"""Who asks: a key from the store, or somebody on this machine."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from hawser.access import ApiKey, Role, hash_of, id_of
from hawser.api.problem import Problem
from hawser.api.rate import Bucket

if TYPE_CHECKING:
    from hawser.store import Store

FRESH_FOR: Final = 0.5
"""Seconds after which keys are read from the store again, beside the requests."""

BELIEVED_FOR: Final = 0.9
"""Seconds that they are believed at the most: how long a revoked one may still be taken. Then requests wait for the reading."""

NEWS_AFTER: Final = 0.1
"""Seconds after which an unknown key is worth another reading: it may have been made just now."""

NOTE_EVERY: Final = 60.0
"""Seconds between two notes of which keys were used."""

ALL: Final = frozenset(Role)

_UNAUTHORISED: Final = {"www-authenticate": 'Bearer realm="hawser"'}


class Identity:
    """Whoever asks, and what it may do."""

    __slots__ = ("name", "roles", "tasks")

    def __init__(self, name: str, roles: frozenset[Role], tasks: frozenset[str] | None = None) -> None:
        self.name = name
        self.roles = roles
        self.tasks = tasks
        """The tasks that it may enqueue; None is all of them."""

    def may_enqueue(self, task: str) -> bool:
        return self.tasks is None or task in self.tasks

    def may_look(self) -> bool:
        """A producer that is nothing else is told nothing of queues, pauses and workers."""
        return not self.roles <= {Role.PRODUCER}

    def may_see(self, task: str) -> bool:
        """A producer that is nothing else sees the jobs of its own tasks."""
        return self.tasks is None or task in self.tasks or self.may_look()


LOCAL: Final = Identity("local", ALL)


class _Holder:
    """A live key with its allowance."""

    def __init__(self, key: ApiKey, clock: Callable[[], float]) -> None:
        self.key = key
        tasks = None if key.tasks is None else frozenset(key.tasks)
        self.identity = Identity(f"{key.name}:{key.id}", frozenset(key.roles), tasks)
        self.bucket = Bucket(key.rate, clock)


class Gate:
    """Lets callers in. Keys that are asked for are read again when half a second old: an idle server asks nothing."""

    def __init__(self, *, require_key: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.require_key = require_key
        self._clock = clock
        self._holders: dict[str, _Holder] = {}
        self._read_at = float("-inf")
        self._noted_at = clock()
        self._used: set[str] = set()
        self._refreshing: asyncio.Future[None] | None = None

    async def admit(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], store: Store) -> Identity:
        """Who this is; a `Problem` (401, 403, 429) when it is nobody that may come in."""
        given = headers.get(b"authorization")
        if given is None:
            if self.require_key or not is_local(scope, headers):
                text = "a key is needed: send it as Authorization: Bearer KEY; make one with: hawser keys create"
                raise Problem(401, text, headers=_UNAUTHORISED)
            refuse_strangers_page(scope, headers)
            return LOCAL
        holder = await self._holder(given, store)
        wait = holder.bucket.take()
        if wait:
            text = f"key {holder.key.id} sends more than its {holder.key.rate:g} requests a second"
            raise Problem(429, text, headers={"retry-after": f"{math.ceil(wait)}"})
        return holder.identity

    async def _holder(self, given: bytes, store: Store) -> _Holder:
        scheme, _, text = given.decode("latin-1").strip().partition(" ")
        text = text.strip()
        id = id_of(text) if scheme.lower() == "bearer" else None
        if id is not None:
            age = self._clock() - self._read_at
            if age > BELIEVED_FOR or (id not in self._holders and age > NEWS_AFTER):
                await asyncio.shield(self._reading(store))
            elif age > FRESH_FOR:
                self._reading(store)
            holder = self._holders.get(id)
            if holder is not None and hmac.compare_digest(holder.key.hash, hash_of(text)):
                self._used.add(id)
                return holder
        raise Problem(401, "the key is unknown, expired or revoked", headers=_UNAUTHORISED)

    def _reading(self, store: Store) -> asyncio.Future[None]:
        """The reading that is under way, or a new one: a thousand callers make one."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refresh(store))
            self._refreshing.add_done_callback(_heard)
        return self._refreshing

    async def _refresh(self, store: Store) -> None:
        asked_at = self._clock()
        live = [record.key for record in await store.api_keys() if record.live]
        known = self._holders
        self._holders = {
            key.id: known[key.id] if key.id in known and known[key.id].key == key else _Holder(key, self._clock) for key in live
        }
        self._read_at = asked_at
        if self._used and asked_at - self._noted_at > NOTE_EVERY:
            used, self._used, self._noted_at = self._used, set(), asked_at
            await store.use_api_keys(sorted(used & self._holders.keys()))

    async def close(self, store: Store) -> None:
        """Leave behind which keys were used."""
        if self._used:
            await store.use_api_keys(sorted(self._used))
            self._used.clear()


def _heard(reading: asyncio.Future[None]) -> None:
    """A reading that failed beside the requests is no news to anybody: the next one that needs it tries again."""
    if not reading.cancelled():
        reading.exception()


def is_local(scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> bool:
    """Whether the caller sits on this machine, and no proxy speaks for somebody else."""
    client = scope.get("client")
    if client is not None and not _is_loopback(client[0]):
        return False
    return not any(name in headers for name in (b"x-forwarded-for", b"forwarded", b"via", b"x-real-ip"))


def refuse_strangers_page(scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
    """A browser on this machine may carry a stranger's page here: by a name that leads to us, or from another origin."""
    host = headers.get(b"host", b"").decode("latin-1")
    name = _hostname(host)
    server = scope.get("server")
    if host and not _is_loopback(name) and not (server is not None and name == server[0]):
        raise Problem(403, f"without a key this server answers to localhost, not to {name!r}; send a key")
    site = headers.get(b"sec-fetch-site")
    origin = headers.get(b"origin")
    foreign = site is not None and site not in (b"same-origin", b"none")
    if foreign or (origin is not None and origin.decode("latin-1").partition("://")[2] != host):
        raise Problem(403, "a page of another origin may not act here without a key")


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@lru_cache(1024)
def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_loopback(host: str) -> bool:
    """Whether a server bound to this host can be reached from this machine only."""
    return _is_loopback(host)
