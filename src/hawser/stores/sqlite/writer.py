"""The one writer of a process: what arrived while it was busy goes into one transaction."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from hawser.batcher import Batcher
from hawser.clock import Watch
from hawser.errors import HawserError, StoreUnavailable
from hawser.stores.sqlite.batches import fold
from hawser.stores.sqlite.checkpointer import Checkpointer
from hawser.stores.sqlite.connection import explain, is_busy
from hawser.stores.sqlite.fork import Guarded
from hawser.stores.sqlite.place import Place
from hawser.stores.sqlite.set_back import SetBack
from hawser.stores.sqlite.turn import Turn
from hawser.stores.sqlite.tx import Tx

T = TypeVar("T")
Work = Callable[[Tx], Any]
Piece = tuple[Work, Future[Any]]

GROUP = 1_000
"""Most pieces of work in one transaction, so that the first of them does not wait for ever."""

FIRST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.02
"""Seconds between two tries while a program that is not ours writes, doubled from the first to the longest."""


class Writer:
    """A thread with the only connection that writes. Work either raises before it writes, or is done."""

    def __init__(
        self,
        con: Guarded,
        place: Place,
        turn: Turn,
        *,
        patience: float,
        clock: Watch,
        sql: Mapping[str, str],
        checkpointer: Checkpointer,
        done: Callable[[], None],
    ) -> None:
        self._con = con
        self._checkpointer = checkpointer
        self._path = con.path
        self._place = place
        self._turn = turn
        self._patience = patience
        self._clock = clock
        self._set_back = SetBack(clock)
        self._sql = sql
        self._done = done
        self._queue: Batcher[Piece] = Batcher(GROUP)
        self._ready = threading.Condition()
        self._writing = False
        self._at_end: Callable[[], None] = _nothing
        self._thread = threading.Thread(target=self._run, name="hawser-sqlite-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Tx], T]) -> Future[T]:
        """Have the work done; the future is set after the commit that holds it."""
        future: Future[T] = Future()
        with self._ready:
            self._queue.add((work, future))
            self._ready.notify()
        return future

    def close(self, within: float, at_end: Callable[[], None]) -> None:
        """Finish what was submitted, then stop and call `at_end`.

        When another process holds the file we do not wait for it longer than `within` seconds, and not at all if no
        caller waits for our work: the thread then ends, and calls `at_end`, when it gets the lock.
        """
        with self._ready:
            self._queue.close(StoreUnavailable("the store is closed; nothing was written: open it again"))
            self._at_end = at_end
            self._ready.notify()
        end = time.monotonic() + within
        while self._thread.is_alive() and time.monotonic() < end:
            self._thread.join(0.05)
            if not self._writing and self._nobody_waits():
                self._thread.join(0.2)
                return

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._queue.closed:
                    self._ready.wait()
                if not self._queue:
                    break
            self._write_all()
        self._at_end()

    def _write_all(self) -> None:
        """Write what is there in one commit; if together they fail, each piece alone in the next rounds."""
        group: list[Piece] = []
        try:
            with self._begun() as con:
                # Taken only now, so that a caller that gave up while we waited for the locks is known to have written nothing.
                group = self._take()
                written = self._write(con, group)
                self._checkpointer.after_commit(con)
        except BaseException as error:  # noqa: BLE001  # each caller must get an answer to any error
            self._fail(group or self._take(), error)
        else:
            if not written:
                with self._ready:
                    self._queue.split(group)

    def _fail(self, group: list[Piece], error: BaseException) -> None:
        reason = explain(error, self._path) if isinstance(error, sqlite3.Error) else error
        for _, future in group:
            if not future.done():
                future.set_exception(reason)

    @contextmanager
    def _begun(self) -> Iterator[sqlite3.Connection]:
        """Our turn, and a transaction that has SQLite's write lock.

        SQLite's lock may be held by a program that takes no turns. Then we leave the turn and come back, so that what
        keeps SQLite's lock from this process alone keeps no other process from writing.
        """
        pause, end = FIRST_PAUSE, None
        while True:
            # A blocking lock: SQLite's own wait sleeps up to 100 ms between its looks.
            self._turn.take()
            try:
                with self._con as con:
                    try:
                        # IMMEDIATE: one that first reads and then writes would fail at once when another wrote between.
                        con.execute("begin immediate")
                    except sqlite3.OperationalError as error:
                        end = end or time.monotonic() + self._patience
                        if not is_busy(error) or time.monotonic() >= end or self._nobody_waits():
                            raise
                    else:
                        self._writing = True
                        try:
                            self._place.check()
                            yield con
                        finally:
                            self._writing = False
                            if con.in_transaction:
                                con.execute("rollback")
                        return
            finally:
                self._turn.leave()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _nobody_waits(self) -> bool:
        with self._ready:
            return all(future.cancelled() for _, future in self._queue)

    def _take(self) -> list[Piece]:
        with self._ready:
            group = self._queue.take()
        # One that runs already is of a group that failed.
        return [(work, future) for work, future in group if future.running() or future.set_running_or_notify_cancel()]

    def _write(self, con: sqlite3.Connection, group: list[Piece]) -> bool:
        """End the transaction with this work in it.

        False when it failed as a whole and may be tried one by one; a group of one is always answered.
        """
        answers: list[tuple[Future[Any], Any, HawserError | None]] = []
        committing = False
        try:
            tx = Tx(con, self._clock.now(), self._sql)
            self._set_back.before(tx)
            changes = con.total_changes
            for work, future in group:
                try:
                    answer = work(tx)
                    fold(tx)
                    answers.append((future, answer, None))
                except HawserError as refused:
                    answers.append((future, None, refused))
            tx.flush()
            self._set_back.after(tx, changed=con.total_changes != changes)
            committing = True
            con.execute("commit")
        except Exception as error:  # noqa: BLE001  # a piece of work may fail in any way, also after it has written something
            with suppress(sqlite3.Error):
                con.execute("rollback")
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
    """What is called at the end of a writer that was not closed."""
