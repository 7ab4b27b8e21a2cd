"""The one writer of a process: whatever arrived while it was busy goes into one transaction."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hawser.clock import Clock
from hawser.errors import HawserError, StoreUnavailable
from hawser.stores.sqlite.checkpointer import Checkpointer
from hawser.stores.sqlite.connection import explain
from hawser.stores.sqlite.tx import Tx

T = TypeVar("T")
Work = Callable[[Tx], Any]

GROUP = 1_000
"""Most pieces of work in one transaction, so that the first of them does not wait for ever."""


class Writer:
    """A thread with the only connection that writes. Work either raises before it writes, or is done."""

    def __init__(
        self,
        con: sqlite3.Connection,
        path: Path,
        *,
        lock: int,
        clock: Clock,
        sql: Mapping[str, str],
        checkpointer: Checkpointer,
        done: Callable[[], None],
    ) -> None:
        self._con = con
        self._checkpointer = checkpointer
        self._path = path
        self._lock = lock
        self._clock = clock
        self._sql = sql
        self._done = done
        self._queue: deque[tuple[Work, Future[Any]]] = deque()
        self._ready = threading.Condition()
        self._closing = False
        self._writing = False
        self._at_end: Callable[[], None] = _nothing
        self._thread = threading.Thread(target=self._run, name="hawser-sqlite-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Tx], T]) -> Future[T]:
        """Have the work done; the future is set after the commit that holds it."""
        future: Future[T] = Future()
        with self._ready:
            if self._closing:
                raise StoreUnavailable("the store is closed; nothing was written: open it again")
            self._queue.append((work, future))
            self._ready.notify()
        return future

    def close(self, within: float, at_end: Callable[[], None]) -> None:
        """Finish what was submitted, then stop and call `at_end`.

        When another process holds the file we do not wait for it longer than `within` seconds, and not at all if nobody
        waits for our work: the thread then ends, and calls `at_end`, when it gets the lock.
        """
        with self._ready:
            self._closing = True
            self._at_end = at_end
            self._ready.notify()
        end = time.monotonic() + within
        while self._thread.is_alive() and time.monotonic() < end:
            self._thread.join(0.05)
            if not self._writing and all(future.cancelled() for _, future in list(self._queue)):
                self._thread.join(0.2)
                return

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closing:
                    self._ready.wait()
                if not self._queue:
                    break
            self._turn()
        self._at_end()

    def _turn(self) -> None:
        """Write what is there in one commit, or each piece alone if together they fail."""
        group: list[tuple[Work, Future[Any]]] = []
        try:
            # Between processes a blocking lock: SQLite's own wait sleeps up to 100 ms between its looks.
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                self._begin()
                self._writing = True
                # Taken only now, so that who gave up while we waited for the locks is known to have written nothing.
                group = self._take()
                if not self._write(group):
                    for one in group:
                        self._begin()
                        self._write([one])
                self._checkpointer.after_commit(self._con)
            finally:
                self._writing = False
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        except BaseException as error:  # noqa: BLE001  # whatever it is, nobody may wait for ever
            reason = explain(error, self._path) if isinstance(error, sqlite3.Error) else error
            for _, future in group or self._take():
                if not future.done():
                    future.set_exception(reason)

    def _begin(self) -> None:
        # IMMEDIATE: a transaction that first reads and then writes would fail at once when another wrote between.
        self._con.execute("begin immediate")

    def _take(self) -> list[tuple[Work, Future[Any]]]:
        with self._ready:
            group = [self._queue.popleft() for _ in range(min(GROUP, len(self._queue)))]
        return [(work, future) for work, future in group if future.set_running_or_notify_cancel()]

    def _write(self, group: list[tuple[Work, Future[Any]]]) -> bool:
        """End the transaction with this work in it.

        False when it failed as a whole and may be tried one by one; a group of one is always answered.
        """
        answers: list[tuple[Future[Any], Any, HawserError | None]] = []
        committing = False
        try:
            tx = Tx(self._con, self._clock.now(), self._sql)
            for work, future in group:
                try:
                    answers.append((future, work(tx), None))
                except HawserError as refused:
                    answers.append((future, None, refused))
            tx.flush()
            committing = True
            self._con.execute("commit")
        except Exception as error:  # noqa: BLE001  # a piece of work may fail in any way, also after it has written something
            with suppress(sqlite3.Error):
                self._con.execute("rollback")
            if len(group) > 1 and not committing:
                return False
            reason = explain(error, self._path, committing=committing) if isinstance(error, sqlite3.Error) else error
            for _, future in group:
                future.set_exception(reason)
            return True
        for future, answer, refusal in answers:
            if refusal is None:
                future.set_result(answer)
            else:
                future.set_exception(refusal)
        self._done()
        return True


def _nothing() -> None:
    """What is called at the end of a writer that nobody closed."""
