"""The portal for sync callers: how a caller without an event loop, or beside one, runs coroutines and waits for them."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from hawser.errors import HawserError, OutcomeUnknown, StoreUnavailable

T = TypeVar("T")

CLOSE_GRACE_S: Final = 5.0
"""Seconds that `close` gives to calls that have begun before it cancels them."""


SLICE: Final = 0.5
"""Seconds after which a waiting caller looks up, so that Ctrl-C is never missed for longer."""


_TOO_LATE: Final = (
    "the interpreter is shutting down and starts no more threads; nothing was written: "
    "enqueue before the end of the program, or call app.open() early if an atexit function has to enqueue"
)


class Portal:
    """Runs coroutines for synchronous callers, from any thread, also while another event loop runs there.

    One daemon thread with an event loop serves all callers; it starts at the first call, and anew after `close` and in
    a forked child. A store whose coroutines never suspend (`store.inline`) is driven in the caller's own thread.
    """

    def __init__(self, store: object = None) -> None:
        self.inline = bool(getattr(store, "inline", False))
        self._lock = threading.Lock()
        self._served: _LoopThread | None = None
        self._left_behind: list[_LoopThread | None] = []
        self._dropped: weakref.finalize[[], Portal] | None = None
        self._fork_known = False

    def call(self, coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run the coroutine and return its result or raise its exception.

        After `timeout` seconds `OutcomeUnknown` is raised. When the caller stops waiting, for that or
        for Ctrl-C, the coroutine is cancelled.
        """
        if self.inline:
            return _drive(coro)
        call = _PortalCall(coro)
        try:
            while not (self._served or self._start()).take(call):
                pass
            return call.wait(timeout)
        except BaseException as error:
            # Ctrl-C may strike anywhere above, also before the call was handed over.
            call.abandon()
            if isinstance(error, RuntimeError) and "interpreter shutdown" in str(error):
                raise StoreUnavailable(_TOO_LATE) from error
            raise

    def close(self) -> None:
        """Finish the calls that have begun, then end the thread. Closing a closed portal does nothing."""
        with self._lock:
            served, self._served = self._served, None
            if self._dropped is not None:
                self._dropped.detach()
        if served is not None:
            served.stop()

    def _start(self) -> _LoopThread:
        with self._lock:
            if self._served is None:
                self._served = _LoopThread()
                # The thread holds no reference to the portal, so its thread ends with a portal that is dropped unclosed.
                self._dropped = weakref.finalize(self, self._served.ask_to_stop)
                self._dropped.atexit = False
                if not self._fork_known:
                    after_fork(self._forked)
                    self._fork_known = True
            return self._served

    def _forked(self) -> None:
        """In a child only the forking thread lives on, and any lock may have been held."""
        self._lock = threading.Lock()
        # Kept, not freed: closing its loop here would unregister the parent's wake-up from the epoll that both share.
        self._left_behind.append(self._served)
        self._served = None


def after_fork(method: Callable[[], None]) -> None:
    """Have a bound method called in every forked child, for as long as its object lives."""
    reference = weakref.WeakMethod(method)

    def forked() -> None:
        if (alive := reference()) is not None:
            alive()

    os.register_at_fork(after_in_child=forked)


def _drive(coro: Coroutine[Any, Any, T]) -> T:
    try:
        coro.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coro.close()
    raise HawserError("the store calls itself inline, but its coroutine wanted to wait; remove its `inline` attribute")


class _PortalCall(Generic[T]):
    """A coroutine that a sync caller waits for; the lock is released when it has ended."""

    __slots__ = ("coro", "dropped", "gate", "served", "task")

    def __init__(self, coro: Coroutine[Any, Any, T]) -> None:
        self.coro = coro
        self.served: _LoopThread | None = None
        self.task: asyncio.Task[T] | None = None
        self.dropped = False
        # A bare lock: a concurrent.futures.Future costs 6 µs more for what is one hand-over.
        self.gate = threading.Lock()
        self.gate.acquire()

    def end(self, _: asyncio.Task[T]) -> None:
        self.gate.release()

    def wait(self, timeout: float | None) -> T:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        # In slices: a Ctrl-C that comes just before the lock goes to sleep does not wake it (seen once in 1,000 tries).
        while not self.gate.acquire(timeout=max(0.0, min(SLICE, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise OutcomeUnknown(f"no answer within {timeout} s; it may or may not have been written")
        assert self.task is not None
        if self.task.cancelled():
            raise OutcomeUnknown("the app was closed during the call; it may or may not have been written")
        return self.task.result()

    def abandon(self) -> None:
        """The caller has stopped waiting."""
        if self.served is None:
            self.coro.close()
        elif self.task is None or not self.task.done():
            self.served.soon(self._cancel)

    def _cancel(self) -> None:
        """On the loop."""
        if self.task is not None:
            self.task.cancel()
        elif not self.dropped:
            self.dropped = True
            self.coro.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """The faster one, where it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _LoopThread:
    """A thread with an event loop. Calls are handed over in a deque, so that one wake-up serves all that came meanwhile."""

    def __init__(self) -> None:
        self._calls: deque[_PortalCall[Any]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._woken = False
        self._closed = False
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="hawser-portal", daemon=True)
        self._thread.start()

    def take(self, call: _PortalCall[Any]) -> bool:
        """Hand a call over; False when the loop has closed and the call must go elsewhere."""
        if threading.get_ident() == self._thread.ident:
            raise HawserError(
                "a synchronous call from within the portal's own event loop would wait for itself; "
                "await the twin that begins with 'a', e.g. aenqueue"
            )
        call.served = self
        self._calls.append(call)
        if self._closed:
            # Either the last turn has taken it, or it is still ours.
            try:
                self._calls.remove(call)
            except ValueError:
                return True
            call.served = None
            return False
        if not self._woken:
            # `_begin` lowers the flag before it empties the deque: what was appended before is seen by it.
            self._woken = True
            self.soon(self._begin)
        return True

    def ask_to_stop(self) -> None:
        self._closed = True
        self.soon(self._loop.stop)

    def stop(self) -> None:
        self.ask_to_stop()
        if threading.get_ident() != self._thread.ident:
            self._thread.join()

    def soon(self, callback: Callable[[], object]) -> None:
        """Call it on the loop, if that still runs."""
        # A closed loop has made its last turn after `_closed` was set, and that turn takes all that was handed over.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._finish())
        finally:
            self._loop.close()

    def _begin(self) -> None:
        self._woken = False
        with suppress(IndexError):
            while True:
                call = self._calls.popleft()
                if not call.dropped:
                    call.task = task = self._loop.create_task(call.coro)
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                    task.add_done_callback(call.end)

    async def _finish(self) -> None:
        self._begin()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_GRACE_S)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._loop.shutdown_asyncgens()
        # A generator that was collected right before is closed by a task of its own.
        await asyncio.sleep(0)
        if closing := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(closing, timeout=CLOSE_GRACE_S)
