"""What an app does once per worker process, and around each attempt."""

from __future__ import annotations

import asyncio
import inspect
import logging
from asyncio import events
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, Final, TypeVar

from hawser.errors import ConfigError

_logger = logging.getLogger("hawser.worker")

F = TypeVar("F", bound=Callable[..., Any])

Next = Callable[[], Awaitable[Any]]
"""What a hook around an attempt calls to go on: the next hook, or the handler."""


class HookValues(dict[str, Any]):
    """What the start hooks of this process returned, by their names."""

    def __missing__(self, name: str) -> Any:
        known = f"there are {', '.join(self)}" if self else "no start hook has run in this process"
        raise KeyError(f"state {name!r}: {known}; it is what a function with that name and @app.on_start returns in a worker")


EMPTY: Final[Mapping[str, Any]] = HookValues()

_CHANGE: Final[ContextVar[Future[None] | None]] = ContextVar("hooks_change", default=None)
"""The start or stop that the code here is a hook of."""


class Hooks:
    """The hooks of one app. Start hooks run once per process, however many workers run in it."""

    def __init__(self) -> None:
        self._starts: dict[str, Callable[..., Any]] = {}
        self._stops: list[tuple[Callable[..., Any], str | None]] = []
        self.arounds: list[Callable[..., Coroutine[Any, Any, Any]]] = []
        self.state: HookValues = HookValues()
        self._workers = 0
        self._lock = Lock()
        self._change: Future[None] | None = None
        """The start or stop under way."""

    # Registering.

    def on_start(self, fn: F) -> F:
        _takes("on_start", fn, 1)
        name = fn.__name__
        if name in self._starts:
            raise ConfigError(f"on_start: {name!r} is already the name of another start hook; give this one another name")
        self._starts[name] = fn
        return fn

    def on_stop(self, fn: Callable[..., Any]) -> Any:
        _takes("on_stop", fn, 1)
        for name, start in self._starts.items():
            if start is fn:
                return lambda stop: self._register_stop(stop, name)
        return self._register_stop(fn, None)

    def _register_stop(self, fn: F, of: str | None) -> F:
        _takes("on_stop", fn, 1)
        self._stops.append((fn, of))
        return fn

    def around(self, fn: F) -> F:
        if not inspect.iscoroutinefunction(fn):
            raise ConfigError(f"around: {fn!r} is not an async def; write `async def hook(ctx, call): return await call()`")
        _takes("around", fn, 2)
        self.arounds.append(fn)
        return fn

    # Start and stop of a worker process.

    async def start(self, app: object) -> None:
        """Run the start hooks, in the order in which they were registered. If one fails, what was started is stopped again.

        Who comes while they run waits until they have ended; if they failed, he runs them himself.
        """
        async with self._changing() as change:
            if not change:
                return
            if not self._workers:
                await self._start_all(app)
            self._workers += 1

    async def stop(self, app: object) -> None:
        """Run the stop hooks, the latest first. One that fails is logged, and the others run all the same."""
        async with self._changing() as change:
            if not change:
                return
            self._workers -= 1
            if not self._workers:
                await self._stop_all(app)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[bool]:
        """One start or stop at a time, on whichever loops. False within a hook: what it does is part of the change under way."""
        mine = Future[None]()
        while True:
            with self._lock:
                under_way = self._change
                if under_way is None:
                    self._change = mine
                    break
            if _CHANGE.get() is under_way:
                yield False
                return
            await _ended(under_way)
        token = _CHANGE.set(mine)
        try:
            yield True
        finally:
            _CHANGE.reset(token)
            self._change = None
            mine.set_result(None)

    async def _start_all(self, app: object) -> None:
        for name, fn in self._starts.items():
            try:
                self.state[name] = await _called(fn, app)
            except BaseException as error:
                await self._stop_all(app)
                error.add_note(f"in the start hook {name}")
                raise

    async def _stop_all(self, app: object) -> None:
        for fn, of in reversed(self._stops):
            if of is not None and of not in self.state:
                continue  # its start hook did not get so far
            try:
                await _called(fn, app if of is None else self.state[of])
            except Exception:
                _logger.exception("the stop hook %s failed", fn.__name__)
        self.state.clear()

    @property
    def may_wait(self) -> bool:
        """Whether a start or stop hook is a coroutine, which needs an event loop."""
        return any(map(inspect.iscoroutinefunction, [*self._starts.values(), *(fn for fn, _ in self._stops)]))

    # Around an attempt.

    def run_async(self, ctx: Any, handler: Next) -> Coroutine[Any, Any, Any]:
        """A coroutine that goes through all hooks to an async handler; the first registered is the outermost."""
        call: Next = handler
        for hook in reversed(self.arounds):
            call = _bound(hook, ctx, call)
        return _awaiting(call)

    def run_plain(self, ctx: Any, handler: Callable[[], Any]) -> Any:
        """The value of a plain handler, with all hooks around it, in this thread. They get a loop, the handler does not."""

        async def call() -> Any:
            loop = events._get_running_loop()  # noqa: SLF001  # as below
            # The handler must see what it would see without hooks: a thread in which it may run a loop of its own.
            events._set_running_loop(None)  # noqa: SLF001  # made for those who nest loops
            try:
                return handler()
            finally:
                events._set_running_loop(loop)  # noqa: SLF001  # as above

        with asyncio.Runner() as runner:
            return runner.run(self.run_async(ctx, call))


def _bound(hook: Callable[..., Coroutine[Any, Any, Any]], ctx: Any, call: Next) -> Next:
    return lambda: hook(ctx, call)


async def _awaiting(call: Next) -> Any:
    return await call()


async def _ended(change: Future[None]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        change.result()  # a store under test drives coroutines without a loop
    else:
        await asyncio.shield(asyncio.wrap_future(change))


async def _called(fn: Callable[..., Any], argument: object) -> Any:
    value = fn(argument) if inspect.signature(fn).parameters else fn()
    return await value if inspect.isawaitable(value) else value


def _takes(what: str, fn: object, most: int) -> None:
    if not callable(fn) or not hasattr(fn, "__name__"):
        raise ConfigError(f"{what}: {fn!r} is not a function; use it as a decorator, without arguments: @app.{what}")
    try:
        inspect.signature(fn).bind(*[None] * (most if inspect.signature(fn).parameters else 0))
    except TypeError:
        takes = "the app, or nothing" if most == 1 else "the context and what to call"
        raise ConfigError(f"{what}: {fn.__name__} cannot be called so; it is given {takes}") from None
