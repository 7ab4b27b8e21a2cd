"""Waiting for the end of jobs: all who wait on one event loop share one read."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn, assert_never

import msgspec

from hawser.client.connection import Connection
from hawser.errors import ConfigError, JobFailed, JobNotFound, ResultTimeout, StoreError
from hawser.job import State
from hawser.store import ENDS_READ, JobEnd, Store
from hawser.task import Task
from hawser.telemetry.logs import CURRENT

_logger = logging.getLogger("hawser.app")

RESULT_FIRST_WAIT_S: Final = 0.01
RESULT_LONGEST_WAIT_S: Final = 0.5
"""Seconds between two looks for one job: the wait doubles from the first to the longest."""

RESULT_LONG_WAIT_OF_FEW_S: Final = 0.1
FEW_WAIT: Final = 100
"""The longest wait while few jobs are waited for, so that a result is there 50 ms after its end. It grows with their number:
500 who wait cost two reads a second."""


class Results:
    """The results of an app's jobs, for those who wait."""

    def __init__(self, connection: Connection, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._connection = connection
        self._tasks = tasks
        self._watches: dict[int, EndWatch] = {}
        """By event loop, while a coroutine waits there."""
        self._threads: dict[str, list[threading.Event]] = {}
        """Threads that wait for jobs of a store that has no loop, by job."""
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        self._warned = False

    def result(self, id: str, task: str, timeout: float | None) -> Any:
        """What the job returned; the calling thread waits for it."""
        self._check(task, timeout)
        portal = self._connection.portal
        ended = self._poll(id, timeout) if portal.inline else portal.call(self.ended(id, timeout))
        return self._value(id, ended)

    async def wait(self, id: str, task: str, timeout: float | None) -> Any:
        """What the job returned."""
        self._check(task, timeout)
        return self._value(id, await self.ended(id, timeout))

    def tell(self, ids: Iterable[str]) -> None:
        """These jobs ended in this process, as far as a worker knows: who waits for one looks at once. From any thread."""
        if not self._watches and not self._threads:
            return
        ids = frozenset(ids)
        for watch in list(self._watches.values()):
            watch.look_now(ids)
        for id in ids & self._threads.keys():
            for event in self._threads.get(id, ()):
                event.set()

    def _check(self, task: str, timeout: float | None) -> None:
        if timeout is not None and (not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout >= 0):
            raise ConfigError(f"timeout: {timeout!r} is not a time in seconds; None waits without an end")
        self.check_kept(task)
        current = CURRENT.get()
        if current is not None and current.job.task in self._tasks and not self._warned:
            self._warned = True
            _logger.warning(
                "job %s of task %s waits for the result of another job: its slot is taken meanwhile, and when all slots wait, no "
                "job runs. Enqueue what comes next as a job that runs after it: next.job(…).after(handle)",
                current.job.id,
                current.job.task,
            )

    def check_kept(self, task: str) -> None:
        """Raises `ConfigError` when the done jobs of the task are removed at once, and their results with them."""
        known = self._tasks.get(task)
        retention = (known.options.retention if known is not None else None) or self._connection.config.retention
        if retention is not None and retention.done <= 0:
            raise ConfigError(
                f"result: done jobs of task {task!r} are not kept (its retention says done=0), so nothing is left to wait for; "
                "give the task retention=Retention(done=60), or let the handler write its result elsewhere"
            )

    async def ended(self, id: str, timeout: float | None) -> JobEnd:
        """How the job ended; `ResultTimeout` when it has not within so many seconds."""
        loop = asyncio.get_running_loop()
        watch = self._watches.get(key := hash(loop))
        if watch is None or watch.loop is not loop:
            watch = self._watches[key] = EndWatch(loop, self._connection.ready, lambda: self._watches.pop(key, None))
        try:
            async with asyncio.timeout(timeout):
                return await watch.ended(id)
        except TimeoutError:
            raise ResultTimeout(id, timeout or 0.0, watch.store_error) from None

    def _poll(self, id: str, timeout: float | None) -> JobEnd:
        """For a store whose calls never suspend: the thread looks by itself."""
        end = None if timeout is None else time.monotonic() + timeout
        wait, event = RESULT_FIRST_WAIT_S, threading.Event()
        self._threads.setdefault(id, []).append(event)
        try:
            while True:
                event.clear()
                [ended] = self._connection.portal.call(self._read_one(id))
                if ended is not None:
                    return ended
                left = wait if end is None else min(wait, end - time.monotonic())
                if left <= 0:
                    raise ResultTimeout(id, timeout or 0.0)
                event.wait(left)
                wait = min(2 * wait, RESULT_LONGEST_WAIT_S)
        finally:
            self._threads[id].remove(event)
            if not self._threads[id]:
                del self._threads[id]

    async def _read_one(self, id: str) -> list[JobEnd | None]:
        return await (await self._connection.ready()).ended([id])

    def _value(self, id: str, ended: JobEnd) -> Any:
        match ended.state:
            case State.DONE:
                return None if ended.result is None else self.decoded(ended.task, ended.result)
            case State.DEAD | State.CANCELLED:
                raise JobFailed(id, ended.state.value, ended.error)
            case None:
                raise JobNotFound(id)
            case State.READY | State.RUNNING:
                return _never(id)
            case _:
                assert_never(ended.state)

    def decoded(self, task: str, result: bytes) -> Any:
        """A result, as the type that the task is said to return, if that fits."""
        decoder = self._decoders.get(task)
        if decoder is None:
            decoder = self._decoders[task] = _decoder(self._tasks.get(task))
        try:
            return decoder.decode(result)
        except msgspec.ValidationError:
            return msgspec.json.decode(result)  # an older version of the task returned something else


def _never(id: str) -> NoReturn:
    raise AssertionError(f"job {id} is live and was said to have ended")


def _decoder(task: Task[..., Any] | None) -> msgspec.json.Decoder[Any]:
    """Reads a result as the type that the task is said to return, where that can be told."""
    if task is not None:
        with suppress(Exception):  # annotations may name anything, also what is imported for type checkers only
            hint = typing.get_type_hints(inspect.unwrap(task.fn)).get("return", Any)
            return msgspec.json.Decoder(hint)
    return msgspec.json.Decoder()


class _Awaited:
    """A job whose end coroutines wait for."""

    __slots__ = ("futures", "look_at", "wait")

    def __init__(self, now: float) -> None:
        self.futures: set[asyncio.Future[JobEnd]] = set()
        self.look_at = now
        self.wait = RESULT_FIRST_WAIT_S / 2


class EndWatch:
    """Reads the ends of jobs for all coroutines of one event loop, and only while there are any."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ready: Callable[[], Awaitable[Store]], over: Callable[[], object]
    ) -> None:
        self.loop = loop
        self.store_error: StoreError | None = None
        """Why the last look failed."""
        self._ready = ready
        self._over = over
        self._jobs: dict[str, _Awaited] = {}
        self._early = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def ended(self, id: str) -> JobEnd:
        job = self._jobs.setdefault(id, _Awaited(self.loop.time()))
        future: asyncio.Future[JobEnd] = self.loop.create_future()
        job.futures.add(future)
        self._early.set()
        if self._looking is None:
            self._looking = self.loop.create_task(self._look_on(), name="hawser-results")
        try:
            return await future
        finally:
            job.futures.discard(future)
            if not job.futures and self._jobs.get(id) is job:
                del self._jobs[id]
                self._early.set()

    def look_now(self, ids: frozenset[str]) -> None:
        """From any thread."""
        if not ids.isdisjoint(self._jobs.keys()) and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._hurry, ids)

    def _hurry(self, ids: frozenset[str]) -> None:
        for id in ids & self._jobs.keys():
            self._jobs[id].look_at = self.loop.time()
        self._early.set()

    async def _look_on(self) -> None:
        try:
            while self._jobs:
                self._early.clear()
                if due := self._due():
                    await self._look(due)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(job.look_at for job in self._jobs.values()) - self.loop.time()):
                        await self._early.wait()
        finally:
            self._looking = None
            self._over()
            for job in self._jobs.values():  # only when this task is cancelled: the loop is coming to its end
                for future in job.futures:
                    future.cancel()

    def _due(self) -> list[str]:
        """Some jobs whose time has come, and those whose time is near: they go into the same read."""
        now = self.loop.time()
        if not any(job.look_at <= now for job in self._jobs.values()):
            return []
        return [id for id, job in self._jobs.items() if job.look_at <= now + job.wait / 2][:ENDS_READ]

    def _longest(self) -> float:
        """Seconds between two looks for one job at the most, by how many are waited for."""
        return min(RESULT_LONGEST_WAIT_S, max(RESULT_LONG_WAIT_OF_FEW_S, RESULT_LONGEST_WAIT_S * len(self._jobs) / FEW_WAIT))

    async def _look(self, ids: list[str]) -> None:
        try:
            answers = await (await self._ready()).ended(ids)
        except StoreError as error:
            self.store_error, answers = error, [None] * len(ids)
        except Exception as error:  # noqa: BLE001  # those who wait hear of it
            self._refuse(ids, error)
            return
        else:
            self.store_error = None
        now = self.loop.time()
        for id, answer in zip(ids, answers, strict=True):
            if (job := self._jobs.get(id)) is None:
                continue
            if answer is None:
                job.wait = RESULT_LONGEST_WAIT_S if self.store_error else min(2 * job.wait, self._longest())
                job.look_at = now + job.wait
                continue
            del self._jobs[id]
            for future in job.futures:
                if not future.done():
                    future.set_result(answer)

    def _refuse(self, ids: list[str], error: Exception) -> None:
        for id in ids:
            if (job := self._jobs.pop(id, None)) is not None:
                for future in job.futures:
                    if not future.done():
                        future.set_exception(error)
