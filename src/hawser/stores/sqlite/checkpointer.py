"""Keeps SQLite's log short: a helper moves it into the file while the writer goes on."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from typing import Final

from hawser.stores.sqlite.fork import Guarded

NUDGE: Final = 5_000
"""Changed rows, about 4 MB of log, after which the helper moves what there is."""

RESTART: Final = 8_000
"""Pages of log (32 MB) at which the writer lets it start over. The helper has moved most of it by then, so the pause is short."""


class Checkpointer:
    """A thread with a connection of its own. Its passive checkpoints wait for no other connection and block none.

    While writers go on, the log never is empty at the end of a passive checkpoint and so would grow without end: from
    time to time the writer starts it over itself, between transactions.
    """

    def __init__(self, con: Guarded) -> None:
        self._con = con
        self._moved_at = 0
        self._long = False
        self._nudged = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="hawser-sqlite-checkpoint", daemon=True)
        self._thread.start()

    def after_commit(self, writer: sqlite3.Connection) -> None:
        """Called by the writer, under the lock that keeps other writers out."""
        if self._long:
            self._long = False
            with suppress(sqlite3.Error):
                # It does not wait for a reader: the writer's connection never waits. It is tried again at the next nudge.
                writer.execute("pragma wal_checkpoint(restart)").fetchone()
        elif writer.total_changes - self._moved_at > NUDGE:
            self._moved_at = writer.total_changes
            self._nudged.set()

    def close(self) -> None:
        self._closing = True
        self._nudged.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._nudged.wait()
            self._nudged.clear()
            if self._closing:
                return
            with suppress(sqlite3.Error), self._con as con:
                _, pages, _ = con.execute("pragma wal_checkpoint(passive)").fetchone()
                self._long = pages > RESTART
