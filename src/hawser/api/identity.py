"""Who asks: the holder of a key from the store, or a caller without one whom `keyless` lets in."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from hawser.api.problem import Problem
from hawser.api.rate import Bucket
from hawser.errors import StoreError
from hawser.store.api_key import ApiKey, Role, hash_of, id_of, is_session_name, parent_of

if TYPE_CHECKING:
    from hawser.api.keyless import Keyless
    from hawser.store import Store

KEYS_FRESH_FOR_S: Final = 0.5
"""Seconds after which keys are read from the store again, beside the requests."""

BELIEVED_FOR: Final = 0.9
"""Seconds that they are believed at the most: how long a revoked one may still be taken. Then requests wait for the reading."""

NEWS_AFTER: Final = 0.1
"""Seconds after which an unknown key is worth another reading: it may have been made just now."""

KEY_USE_NOTE_EVERY_S: Final = 60.0
"""Seconds between two notes of which keys were used."""

ALL: Final = frozenset(Role)

UNAUTHORISED: Final = {"www-authenticate": 'Bearer realm="hawser"'}


class Identity:
    """A caller, and what it may do."""

    __slots__ = ("bucket", "id", "keyed", "name", "queues", "roles", "session", "tasks")

    def __init__(
        self, name: str, roles: Iterable[Role | str], tasks: Iterable[str] | None = None, queues: Iterable[str] | None = None
    ) -> None:
        self.name = name
        self.id = name.replace("#", "-")
        """What the runs that it claims are bound to; of a key its public part."""
        self.roles = frozenset(map(Role, roles))
        self.tasks = None if tasks is None else frozenset(tasks)
        """The tasks that it may enqueue; None is all of them."""
        self.queues = None if queues is None else frozenset(queues)
        """The queues that it may enqueue into and claim from; None is all of them."""
        self.bucket: Bucket | None = None
        """What it may still send; None is no end."""
        self.keyed = False
        """It came in with a key, which may be revoked while a call is open."""
        self.session = False
        """It came in by the cookie of a browser that has logged in."""

    def owes(self, more: int) -> None:
        """Count jobs that a request carried beyond its first."""
        if self.bucket is not None:
            self.bucket.owe(more)

    def may_use(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def may_enqueue(self, task: str) -> bool:
        return self.tasks is None or task in self.tasks

    def may_look(self) -> bool:
        """A producer that is nothing else is told nothing of queues, pauses and workers."""
        return not self.roles <= {Role.PRODUCER}

    def may_see(self, task: str, queue: str) -> bool:
        """A producer that is nothing else sees the jobs of its own tasks and queues."""
        return self.may_look() or (self.may_enqueue(task) and self.may_use(queue))


LOCAL: Final = Identity("local", ALL)
LOCAL.id = ""

LOCAL_SESSION: Final = Identity("local", ALL)
LOCAL_SESSION.id = ""
LOCAL_SESSION.session = True
"""A browser that has logged in with the token of the server."""

COOKIE: Final = "hawser_session"


class _Holder:
    """A live key with its allowance."""

    def __init__(self, key: ApiKey, clock: Callable[[], float], parent: ApiKey | None = None) -> None:
        """`parent` is the key that made this session; actions are signed with its name."""
        self.key = key
        signer = parent or key
        self.identity = Identity(f"{signer.name}:{signer.id}", key.roles, key.tasks, key.queues)
        self.identity.id = key.id
        self.identity.session = parent is not None
        self.identity.keyed = True
        self.bucket = self.identity.bucket = Bucket(key.rate, clock)


class Gate:
    """Lets callers in. Keys that are asked for are read again when half a second old: an idle server asks nothing."""

    def __init__(self, keyless: Keyless, clock: Callable[[], float] = time.monotonic) -> None:
        self._keyless = keyless
        self._clock = clock
        self._holders: dict[str, _Holder] = {}
        self._read_at = float("-inf")
        self._noted_at = clock()
        self._used: set[str] = set()
        self._refreshing: asyncio.Future[None] | None = None

    async def admit(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], store: Store) -> Identity:
        """Who this is; a `Problem` (401, 403, 429) when the caller is refused."""
        given = headers.get(b"authorization")
        if given is None and (cookie := _cookie(headers)) is not None:
            session = await self._session(cookie, store)
            if session is not None:
                refuse_forged(scope, headers)
                return session
        text = None if given is None else bearer_of(given)
        id = None if text is None else id_of(text)
        if given is None or (id is None and self._keyless.token is not None):
            return await self._keyless.admit(scope, headers)
        if text is None or id is None:
            raise _unknown()
        holder = await self._holder(id, text, store)
        if holder.identity.session:
            raise _unknown(id)
        return _counted(holder)

    async def _session(self, text: str, store: Store) -> Identity | None:
        """Who a cookie stands for; None when it is over: then the caller is one without a key."""
        token = self._keyless.token
        if token is not None and hmac.compare_digest(text.encode(), token.encode()):
            return LOCAL_SESSION
        id = id_of(text)
        if id is None:
            return None
        if id not in self._holders and (early := NEWS_AFTER - (self._clock() - self._read_at)) >= 0:
            # A browser comes with its new cookie at once, maybe to another server than the one that made it.
            await asyncio.sleep(early + 0.01)
        try:
            holder = await self._holder(id, text, store)
        except Problem:
            return None
        return _counted(holder) if holder.identity.session else None

    async def admit_again(self, identity: Identity, store: Store) -> None:
        """For calls that stay open: a `Problem` (401) once the key was revoked, changed, or has run out."""
        if not identity.keyed:
            return
        await self._look(self._clock() - self._read_at > BELIEVED_FOR, store)
        holder = self._holders.get(identity.id)
        if holder is None or holder.identity is not identity:
            raise _unknown()

    async def until_refused(self, identity: Identity, store: Store) -> None:
        """For calls that wait: returns once `admit_again` would refuse. A store that is away refuses no caller."""
        if not identity.keyed:
            await asyncio.Event().wait()
        while True:
            with suppress(StoreError):
                try:
                    await self.admit_again(identity, store)
                except Problem:
                    return
            await asyncio.sleep(KEYS_FRESH_FOR_S)

    def forget(self, identity: Identity) -> None:
        """It has given up its key: here at once, at other servers within a second."""
        self._holders.pop(identity.id, None)

    async def _holder(self, id: str, text: str, store: Store) -> _Holder:
        age = self._clock() - self._read_at
        await self._look(age > BELIEVED_FOR or (id not in self._holders and age > NEWS_AFTER), store)
        holder = self._holders.get(id)
        if holder is None or not hmac.compare_digest(holder.key.hash, hash_of(text)):
            raise _unknown(id)
        self._used.add(id)
        return holder

    async def _look(self, must: bool, store: Store) -> None:
        """Read the keys before going on, or, when what is known is good enough, beside it."""
        if must:
            await asyncio.shield(self._reading(store))
        elif self._clock() - self._read_at > KEYS_FRESH_FOR_S:
            self._reading(store)

    def _reading(self, store: Store) -> asyncio.Future[None]:
        """The reading that is under way, or a new one: a thousand callers make one."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refresh(store))
            self._refreshing.add_done_callback(_heard)
        return self._refreshing

    async def _refresh(self, store: Store) -> None:
        asked_at = self._clock()
        live = {record.key.id: record.key for record in await store.api_keys() if record.live}
        known = self._holders
        self._holders = {}
        for id, key in live.items():
            parent = None
            if is_session_name(key.name):
                parent = live.get(parent_of(key.name))
                if parent is None:
                    continue  # the key that logged in was revoked or has run out
            self._holders[id] = known[id] if id in known and known[id].key == key else _Holder(key, self._clock, parent)
        self._read_at = asked_at
        if self._used and asked_at - self._noted_at > KEY_USE_NOTE_EVERY_S:
            used, self._used, self._noted_at = self._used, set(), asked_at
            await store.use_api_keys(sorted(used & self._holders.keys()))

    async def close(self, store: Store) -> None:
        """Leave behind which keys were used."""
        if self._used:
            await store.use_api_keys(sorted(self._used))
            self._used.clear()


def _counted(holder: _Holder) -> Identity:
    """A request of this key, within what the key may send."""
    wait = holder.bucket.take()
    if wait:
        text = f"key {holder.key.id} sends more than its {holder.key.rate:g} requests and jobs a second"
        raise Problem(429, text, headers={"retry-after": f"{math.ceil(wait)}"}, by=holder.identity.name)
    return holder.identity


def _cookie(headers: Mapping[bytes, bytes]) -> str | None:
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE and value:
            return value
    return None


def refuse_forged(scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
    """A browser sends its cookie with every request that any page makes: only our own page may act."""
    if scope["method"] in ("GET", "HEAD"):
        return
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin", b"")
    # Browsers leave the first header out on plain HTTP, except for this machine.
    ours = site == b"same-origin" if site is not None else bool(origin) and origin.partition(b"://")[2] == headers.get(b"host")
    if not ours:
        raise Problem(403, "a session acts only from the dashboard's own page; programs send a key as Authorization: Bearer KEY")
    if scope["method"] != "DELETE" and headers.get(b"content-type", b"").partition(b";")[0].strip() != b"application/json":
        raise Problem(415, "send the body as application/json", headers={"accept-post": "application/json"})


def bearer_of(given: bytes) -> str | None:
    scheme, _, text = given.decode("latin-1").strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


def _unknown(id: str | None = None) -> Problem:
    """`id` is the public part of the key, if it has one."""
    by = None if id is None else f"unknown:{id}"
    return Problem(401, "the key is unknown, expired or revoked", headers=UNAUTHORISED, by=by)


def _heard(reading: asyncio.Future[None]) -> None:
    """A read that failed in the background is dropped: the next request that needs it tries again."""
    if not reading.cancelled():
        reading.exception()
