"""The memory store with a journal."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hawser.clock import Clock, SystemClock
from hawser.errors import HawserError, StoreUnavailable
from hawser.store import LEAVE_NOTHING, Durability, Leave
from hawser.stores.memory.journal.call import READS, LoggedCall, digest_of, run
from hawser.stores.memory.journal.compact import put_image
from hawser.stores.memory.journal.folder import Folder
from hawser.stores.memory.journal.log import Log
from hawser.stores.memory.journal.replay import ARGUMENTS, LOGGED_METHODS, StillClock, load
from hawser.stores.memory.store import MemoryStore

_logger = logging.getLogger("hawser.store")

COMPACT_AT: Final = 64 * 2**20
"""Bytes of a log, and at least as many as the last image has, from which on it is worth an image."""


if TYPE_CHECKING:
    _Methods = MemoryStore
else:
    _Methods = object


class JournaledStore(_Methods):
    """Every call that changes something is made in memory, written to the log, and answered when the disk has it.

    A call that only reads waits for what was written before it, so that it never tells what a crash could take back. The methods
    are those of the memory store; they are set below.
    """

    durability: Durability = "durable"
    inline = False
    retention = MemoryStore.retention
    done_most = MemoryStore.done_most

    def __init__(self, path: Path, *, clock: Clock | None = None, compact_at: int = COMPACT_AT) -> None:
        self._time = clock or SystemClock()
        self._still = StillClock()
        self._memory = MemoryStore(clock=self._still)
        self._folder = Folder(path)
        self._compact_at = compact_at
        self._lock = threading.RLock()
        self._log: Log | None = None
        self._compacting: threading.Thread | None = None
        self._owner = 0

    async def open(self) -> None:
        if self._log is not None and self._owner == os.getpid():
            return
        self._folder.take()
        try:
            self._memory = MemoryStore(clock=self._still)
            self._folder.remove_unfinished()
            self._folder.remove_covered()
            end = load(self._folder, self._memory, self._still)
            self._log = Log(self._folder, end.log + 1, end.frame, end.size)
            self._owner = os.getpid()
        except BaseException:
            self._folder.let_go()
            raise

    async def close(self) -> None:
        log, self._log = self._log, None
        if log is None:
            return
        if self._owner == os.getpid():
            log.close()
            if self._compacting is not None:
                self._compacting.join()
            if log.size and log.works:
                # The next start has nothing to make again.
                put_image(self._folder, log.number, log.next_frame, self._memory)
                self._folder.remove_covered()
        self._folder.let_go()

    def _current(self) -> Log:
        """The log to write to."""
        log = self._log
        if log is None:
            raise StoreUnavailable("the store is not open; call app.open() first")
        if self._owner != os.getpid():
            raise StoreUnavailable(
                "the journal was opened before this process was forked, and has one owner; use sqlite:/// for several processes"
            )
        log.check()
        return log

    async def _write(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Make a call, write it, and wait for the disk."""
        log = self._current()
        arguments = ARGUMENTS[name].encode(given, named)
        answer: Any
        with self._lock:
            latest, self._still.at = self._memory.watch.latest, self._time.now()
            try:
                answer = run(LOGGED_METHODS[name](self._memory, *given, **named))
            except HawserError as error:
                answer = error
            log.add(LoggedCall(self._still.at, latest, name, arguments, digest_of(answer)))
        await log.durable()
        self._compact_when_due(log)
        if isinstance(answer, HawserError):
            raise answer
        return answer

    async def _read(self, method: Callable[..., Coroutine[Any, Any, Any]], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        log = self._current()
        if self._time.now() < self._memory.watch.latest:
            # The clock was set back. What follows from that is a change like any other: this call makes nothing else.
            await self._write("reclaim", (0,), {})
        with self._lock:
            self._look_at_clock()
            answer = run(method(self._memory, *given, **named))
        await log.durable()
        return answer

    def _look_at_clock(self) -> None:
        self._still.at = max(self._time.now(), self._memory.watch.latest)

    async def go_on(self) -> bool:
        if (overdue := self._memory.any_overdue(self._time.now())) is True:
            await self.reclaim(0)
        return overdue is not None

    async def wait(self, queues: Sequence[str], timeout: float, leave: Leave = LEAVE_NOTHING) -> None:
        with self._lock:
            self._look_at_clock()
        await self._memory.wait(queues, timeout, leave)

    def _compact_when_due(self, log: Log) -> None:
        if log.size < self._compact_at or (self._compacting is not None and self._compacting.is_alive()):
            return
        with self._lock:
            if self._compacting is not None and self._compacting.is_alive():
                return
            image = self._folder.newest_image()
            if image and log.size < self._folder.image(image).stat().st_size:
                return
            self._compacting = threading.Thread(target=self._compact, args=(log,), name="hawser-compact", daemon=True)
            self._compacting.start()

    def _compact(self, log: Log) -> None:
        """Make the image in a child process; when that fails the logs stay, and are longer to read at the next start."""
        upto = str(log.rotate())
        command = [sys.executable, "-m", "hawser.stores.memory.journal.compact", str(self._folder.path), upto]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own module
        if ended.returncode:
            _logger.warning("the journal %s was not compacted: %s", self._folder.path, ended.stderr.strip()[-500:])
        else:
            self._folder.remove_covered()


def _written(name: str) -> Any:
    @wraps(LOGGED_METHODS[name])
    async def call(self: JournaledStore, *given: Any, **named: Any) -> Any:
        return await self._write(name, given, named)

    return call


def _reading(name: str) -> Any:
    method = getattr(MemoryStore, name)

    @wraps(method)
    async def call(self: JournaledStore, *given: Any, **named: Any) -> Any:
        return await self._read(method, given, named)

    return call


for _name in LOGGED_METHODS:
    setattr(JournaledStore, _name, _written(_name))
for _name in READS:
    setattr(JournaledStore, _name, _reading(_name))
