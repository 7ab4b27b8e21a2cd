"""How the server itself is: alive, ready, and what it can do."""

from __future__ import annotations

import asyncio

from hawser.api.call import Answer, Call, NoBody, NoQuery, Text
from hawser.api.problem import Problem
from hawser.api.readiness import PATIENCE
from hawser.api.views import Health, Ready
from hawser.errors import StoreError


async def healthz(call: Call[NoBody, NoQuery]) -> Answer:  # noqa: ARG001  # one shape for all handlers
    """The process is alive."""
    return Answer(Health(status="ok"))


async def readyz(call: Call[NoBody, NoQuery]) -> Answer:
    """The store answers and takes writes, and the server is not about to stop."""
    if call.api.stopping.is_set():
        raise Problem(503, "the server is about to stop")
    try:
        async with asyncio.timeout(PATIENCE):
            store = await call.app.store()
            await store.limits()
    except (StoreError, TimeoutError):
        raise Problem(503, "the store does not answer") from None
    try:
        await call.api.readiness.check(store)
    except (StoreError, TimeoutError):
        raise Problem(503, "the store answers, but takes no writes") from None
    return Answer(Ready(status="ready", durability=store.durability))


async def openapi(call: Call[NoBody, NoQuery]) -> Text:
    """This API as an OpenAPI 3.1 document."""
    return Text(call.api.description.encoded(), "application/json")
