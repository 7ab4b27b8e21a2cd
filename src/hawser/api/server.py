"""The ASGI application: finds the route, lets the caller in, reads the body, and sends what the handler answers."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import msgspec

from hawser.api.bodies import MAX_WAIT
from hawser.api.call import Answer, Call, NoBody, Stream, Text
from hawser.api.decoding import read
from hawser.api.depths import DepthGuard
from hawser.api.events import Pulse
from hawser.api.identity import LOCAL, Gate, Identity
from hawser.api.intake import Intake
from hawser.api.job_events import JobReads
from hawser.api.keyless import Closed, Identified, Keyless, Open, without_token
from hawser.api.login_guard import LoginGuard
from hawser.api.marks import Marks
from hawser.api.openapi import Description
from hawser.api.operation import BulkRunner
from hawser.api.options import ApiOptions, ApiSettings, checked, host_of
from hawser.api.output import OutputReads
from hawser.api.page import Dashboard
from hawser.api.past import Past
from hawser.api.problem import PROBLEM_MEDIA_TYPE, Problem, problem_of
from hawser.api.pull_workers import PullWorkers
from hawser.api.readiness import Readiness
from hawser.api.request import HungUp, query_of, read_body, too_large
from hawser.api.response import PLAIN_HEADERS, Receive, Scope, Send, encoded, send_stream, send_whole, watch_for_hang_up
from hawser.api.route import NO_KEY, Route, RouteMatch, Table
from hawser.api.routes import ROUTES
from hawser.api.session import log_in
from hawser.api.shared import Shared
from hawser.api.totals import Totals
from hawser.api.upkeep import Upkeep
from hawser.api.visits import REFUSED, Visits
from hawser.cycle import Cycle
from hawser.errors import JobNotFound, StoreError
from hawser.task import asks_for_confirmation
from hawser.telemetry import metric
from hawser.telemetry.meter import Meter
from hawser.value.ids import is_id

if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.store import Store

Headers = Mapping[bytes, bytes]

_encode = msgspec.json.Encoder().encode

_SAFE_HEADERS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"private, no-cache"))
_NO_BODY: Final = NoBody()
_STAYS: Final = asyncio.Event()
"""For routes that do not wait: whether the caller has hung up is not checked."""

_TABLE: Final = Table(ROUTES)

COUNTS_FRESH_FOR: Final = 2.0
"""Seconds for which all callers get the same counts of jobs, which may take a look at each of them."""

SCREEN_FRESH_FOR: Final = 0.5
"""Seconds for which all who look at the same screen get the same figures."""

STORE_FACTS_FRESH_FOR: Final = 60.0
"""The same for what takes a connection of its own: the schema, and sizes."""

_CALLER: Final = "hawser.caller"
"""Where a request's scope has the name of who was let in."""


class Api:
    """Serves one app. Its parts start with the first request, or with the server's lifespan; mounted apps have none."""

    def __init__(self, app: Hawser, keyless: Keyless | None = None, **settings: Unpack[ApiSettings]) -> None:
        self.app = app
        self.options = checked(settings)
        self.keyless = keyless or _keyless(self.options)
        """What becomes of callers without a key."""
        self.table = _TABLE
        self.stopping = asyncio.Event()
        """Set when the server goes down: all waits end."""
        self.meter = Meter(app.clock)
        self.readings = self.meter.readings
        """What this server has counted."""
        self.totals = Totals(app.clock)
        self.intake = Intake(app.aput)
        self.depths = DepthGuard(self.options.max_waiting)
        self.operations = BulkRunner(partial(asks_for_confirmation, app.tasks))
        self.pull_workers = PullWorkers(tells=self.options.upkeep)
        self.gate = Gate(self.keyless)
        self.pulse = Pulse(self.stopping, self.gate.admit_again, app.clock)
        self.job_reads = JobReads()
        self.output_reads = OutputReads()
        self.readiness = Readiness()
        self.dashboard = Dashboard()
        self.screens: Shared[Any] = Shared(SCREEN_FRESH_FOR)
        self.counted: Shared[Any] = Shared(COUNTS_FRESH_FOR)
        self.store_facts: Shared[Any] = Shared(STORE_FACTS_FRESH_FOR)
        self.past = Past()
        self.marks = Marks(app.clock)
        self._logins = LoginGuard()
        self.description = Description(
            self.table, app.tasks, require_key=isinstance(self.keyless, Closed), most=self.options.max_attempts
        )
        self._visits = Visits(access_log=self.options.access_log)
        self._public_host: Headers = {} if (url := self.options.public_url) is None else {b"host": host_of(url)}
        """Of a proxy's requests the Host may be another one than the browser's."""
        self._upkeep: Upkeep | None = None
        self._day: Cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await self._live(receive, send)
            case _:
                raise RuntimeError(f"the API does not speak {scope['type']}")

    # The life of the server.

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001  # the server should say it and not start
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def start(self) -> None:
        """Open the store and begin with upkeep."""
        store = await self.app.store()
        if self._upkeep is None:
            await self.totals.read(store)
            takes_over = None if self.options.read_only else self.operations
            self._upkeep = Upkeep(self.app, store if self.options.upkeep else None, self.meter, self.pull_workers, takes_over)
            self._upkeep.start()
            self._day = Cycle("day of counts", partial(self.past.day.turn, store))
            self._day.start()

    async def stop(self) -> None:
        """End what waits, and let go of the store."""
        self.stopping.set()
        self._visits.flush()
        await self.readiness.stop()
        await self.operations.stop()
        if self._upkeep is not None:
            await self._upkeep.stop()
            self._upkeep = None
            await self._day.stop()
            with suppress(StoreError):
                await self.gate.close(await self.app.store())
        await self.app.aclose()

    # A request.

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        asked = scope["method"]
        method = "GET" if asked == "HEAD" else asked
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if method == "GET" and (page := self.dashboard.answer(path, dict(scope["headers"]))) is not None:
            await send_whole(send, page.status, page.media_type, page.body, page.headers, silent=asked == "HEAD")
            return
        found = self.table.find(method, path)
        route = None if found is None else found.route
        status: int | None = None
        by: str | None = None
        try:
            answer = await self._answer(found, path, scope, receive)
            status = await self._send(scope, receive, send, answer)
        except HungUp:
            return
        except Exception as error:  # noqa: BLE001  # every request gets an answer
            problem = problem_of(error)
            status, by = problem.status, problem.by
            if status in REFUSED:
                self._visits.refused(scope, route, problem, by or scope.get(_CALLER))
            body = _encode(problem.document())
            extra = tuple((name.encode(), value.encode("latin-1", "replace")) for name, value in problem.headers.items())
            await send_whole(send, status, PROBLEM_MEDIA_TYPE.encode(), body, extra + PLAIN_HEADERS, silent=asked == "HEAD")
        finally:
            self._visits.ended(scope, route, status, time.monotonic() - began, by or scope.get(_CALLER))
        if route is not None:
            self._note(route, status, time.monotonic() - began)

    def _note(self, route: Route, status: int, seconds: float) -> None:
        self.readings.count(metric.REQUESTS, (route.method, route.path, str(status)))
        if not route.takes.waits:
            self.readings.time(metric.REQUEST_SECONDS, seconds, (route.method, route.path))

    async def _answer(self, found: RouteMatch | None, path: str, scope: Scope, receive: Receive) -> Answer | Text | Stream:
        if found is None:
            raise self._no_route(path)
        route = found.route
        headers: Headers = {**dict(scope["headers"]), **self._public_host}
        gone = asyncio.Event() if route.takes.waits else _STAYS
        async with asyncio.timeout(self.options.deadline + (MAX_WAIT if route.takes.waits else 0.0)):
            store, identity = await self._admit(route, scope, headers)
            if "id" in found.path and not is_id(found.path["id"]):
                raise JobNotFound(found.path["id"])
            text: bytes = scope["query_string"]
            query = query_of(route, text if self.keyless.token is None else without_token(text))
            body = await self._body(route, headers, receive)
            call: Call[Any, Any] = Call(self, store, identity, found.path, query, body, scope, gone)
            if not route.takes.waits:
                return await route.handler(call)
            watch = asyncio.ensure_future(watch_for_hang_up(receive, gone))
            try:
                return await route.handler(call)
            finally:
                watch.cancel()

    async def _send(self, scope: Scope, receive: Receive, send: Send, answer: Answer | Text | Stream) -> int:
        match answer:
            case Answer():
                return await self._send_value(scope, send, answer)
            case Text():
                body, headers = await encoded(scope, answer.body, PLAIN_HEADERS)
                await send_whole(send, 200, answer.media_type.encode(), body, headers, silent=scope["method"] == "HEAD")
            case Stream() if scope["method"] == "HEAD":
                answer.close()
                await send_whole(send, 200, answer.media_type.encode(), b"", (*answer.headers, *PLAIN_HEADERS))
            case Stream():
                await send_stream(receive, send, answer)
        return 200

    def _no_route(self, path: str) -> Problem:
        allowed = self.table.methods(path)
        if not allowed:
            return Problem(404, "there is nothing at this path; GET /openapi.json lists what there is")
        return Problem(405, f"this path takes {', '.join(allowed)}", headers={"allow": ", ".join(allowed)})

    async def _admit(self, route: Route, scope: Scope, headers: Headers) -> tuple[Store, Identity]:
        if route.roles is NO_KEY:
            # Whether the process lives must not depend on the store.
            return cast("Store", None), LOCAL
        if self._upkeep is None:
            await self.start()
        store = await self.app.store()
        if route.handler is log_in:
            with self._logins.watched(scope):
                identity = await self.gate.admit(scope, headers, store)
        else:
            identity = await self.gate.admit(scope, headers, store)
        scope[_CALLER] = identity.name
        if route.roles.isdisjoint(identity.roles):
            needed = ", ".join(sorted(route.roles))
            raise Problem(403, f"this takes a key with one of the roles {needed}")
        if self.options.read_only and not route.reads:
            raise Problem(403, "this server is read-only; ask one that is not")
        return store, identity

    async def _body(self, route: Route, headers: Headers, receive: Receive) -> Any:
        limit = self.options.max_batch_body if route.takes.large else self.options.max_body
        announced = headers.get(b"content-length")
        if announced is not None and announced.isdigit() and (len(announced) > 15 or int(announced) > limit):
            raise too_large(limit)
        body = await read_body(receive, limit)
        if not route.takes.has_body:
            if body.strip() not in (b"", b"{}"):
                raise Problem(400, "this takes no body; send none, or {}")
            return _NO_BODY
        media_type = headers.get(b"content-type")
        if media_type is not None and media_type.partition(b";")[0].strip().lower() != b"application/json":
            raise Problem(415, "send the body as application/json", headers={"accept-post": "application/json"})
        return read(body or b"{}", route.takes.decode, route.takes.body)

    async def _send_value(self, scope: Scope, send: Send, answer: Answer) -> int:
        body = _encode(answer.value)
        method = scope["method"]
        if method not in ("GET", "HEAD"):
            body, headers = await encoded(scope, body, answer.headers + PLAIN_HEADERS)
            await send_whole(send, answer.status, b"application/json", body, headers)
            return answer.status
        tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'.encode()
        headers = (*answer.headers, *_SAFE_HEADERS)
        known = dict(scope["headers"]).get(b"if-none-match", b"")
        if tag in known or known.strip() == b"*":
            await send({"type": "http.response.start", "status": 304, "headers": [*headers, (b"etag", tag)]})
            await send({"type": "http.response.body", "body": b""})
            return 304
        sent, headers = await encoded(scope, body, headers)
        # The same content in other bytes: only a weak tag may stand for both.
        headers = (*headers, (b"etag", tag if sent is body else b"W/" + tag))
        await send_whole(send, answer.status, b"application/json", sent, headers, silent=method == "HEAD")
        return answer.status


def _keyless(options: ApiOptions) -> Keyless:
    if options.identify is not None:
        return Identified(options.identify)
    return Open() if options.open else Closed()
