"""How the server itself is: alive, ready, and what it can do."""

from __future__ import annotations

import asyncio
import platform
import time
from collections import Counter
from datetime import datetime

from hawser.api.bodies import Out
from hawser.api.call import Answer, Call, NoBody, NoQuery, Text
from hawser.api.openapi import version
from hawser.api.problem import Problem
from hawser.api.readiness import STORE_ANSWERS_WITHIN_S
from hawser.api.route import ACTS
from hawser.api.views import Health, Ready
from hawser.client.explain import is_alive
from hawser.clock import at
from hawser.errors import HawserError, StoreError
from hawser.store import Durability, Retention
from hawser.store.api_key import KeyRecord, is_session_name
from hawser.stores import schema_of, sizes_of
from hawser.stores.url import without_password


async def healthz(call: Call[NoBody, NoQuery]) -> Answer:  # noqa: ARG001  # one shape for all handlers
    """The process is alive."""
    return Answer(Health(status="ok"))


async def readyz(call: Call[NoBody, NoQuery]) -> Answer:
    """The store answers and takes writes, and the server is not about to stop."""
    if call.api.stopping.is_set():
        raise Problem(503, "the server is about to stop")
    try:
        async with asyncio.timeout(STORE_ANSWERS_WITHIN_S):
            store = await call.app.store()
            await store.limits()
    except (StoreError, TimeoutError):
        raise Problem(503, "the store does not answer") from None
    try:
        await call.api.readiness.check(store)
    except (StoreError, TimeoutError):
        raise Problem(503, "the store answers, but takes no writes") from None
    return Answer(Ready(status="ready", durability=store.durability))


class KeyUse(Out):
    """A key of the API, without its secret."""

    name: str
    roles: list[str]
    used_at: datetime | None
    expires_at: datetime | None


class SystemOut(Out):
    """How this server is set up, and how quickly its store answers. Keys are told to operators; null for others."""

    version: str
    python: str
    store: str
    """Its kind, and where it is; without a password."""
    durability: Durability
    read_ms: float
    """How long a read took just now."""
    max_payload: int
    retention: Retention
    schema: int | None
    """The version of its schema; null where a store has none, or does not tell."""
    sizes: dict[str, int]
    """Bytes that the store takes: `file` and `log`, or `tables` and the `indexes` among them; empty where it does not tell."""
    clock_skew_s: float
    """How far the store's clock is ahead of this server's, but for the time that the question took."""
    workers: dict[str, int]
    """How many live workers there are, by version."""
    keys: list[KeyUse] | None


async def system(call: Call[NoBody, NoQuery]) -> Answer:
    """The server, its store, its settings and the use of its keys."""
    return Answer(await call.api.counted.get(("system", _may_see_keys(call)), lambda: _system(call)))


def _may_see_keys(call: Call[NoBody, NoQuery]) -> bool:
    return not ACTS.isdisjoint(call.identity.roles)


async def _system(call: Call[NoBody, NoQuery]) -> SystemOut:
    store, config, began = call.store, call.app.config, time.monotonic()
    seen = await store.workers()
    read = time.monotonic()
    now = at(call.app.clock.now())
    schema, sizes = await call.api.store_facts.get("store", lambda: asyncio.to_thread(_facts, config.store))
    keys = [each for each in await store.api_keys() if each.live and not is_session_name(each.key.name)]
    return SystemOut(
        version=version(),
        python=platform.python_version(),
        store=without_password(config.store),
        durability=store.durability,
        read_ms=round((read - began) * 1000, 2),
        max_payload=config.max_payload,
        retention=config.retention or store.retention,
        schema=schema,
        sizes=sizes,
        clock_skew_s=await _skew(call),
        workers=dict(Counter(each.beat.version for each in seen if is_alive(each, now))),
        keys=[_use(each) for each in keys] if _may_see_keys(call) else None,
    )


def _facts(url: str) -> tuple[int | None, dict[str, int]]:
    """What takes a connection of its own."""
    try:
        schema = schema_of(url)
        return (None if schema is None else schema.version), sizes_of(url)
    except (HawserError, OSError):
        return None, {}


async def _skew(call: Call[NoBody, NoQuery]) -> float:
    before = call.app.clock.now()
    theirs = (await call.store.due_schedules(0)).now
    after = call.app.clock.now()
    return round((max(0, theirs - after) - max(0, before - theirs)) / 1_000_000, 3)


def _use(record: KeyRecord) -> KeyUse:
    key = record.key
    return KeyUse(name=key.name, roles=sorted(key.roles), used_at=record.used_at, expires_at=record.expires_at)


async def openapi(call: Call[NoBody, NoQuery]) -> Text:
    """This API as an OpenAPI 3.1 document."""
    return Text(call.api.description.encoded(), "application/json")
