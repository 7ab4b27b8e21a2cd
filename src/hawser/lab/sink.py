"""The world outside, as far as jobs change it: a file that takes an effect only from a lease not older than the last it saw."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Final

SINK_SCHEMA: Final = """
pragma journal_mode = wal;
create table if not exists effect (job text primary key, lease integer not null, times integer not null default 1) without rowid;
"""


class Sink:
    """What a payment provider that knows fencing would do."""

    def __init__(self, path: Path) -> None:
        self._con = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._con.executescript(SINK_SCHEMA)
        # It stands outside of every fault, so it need not survive a power cut.
        self._con.execute("pragma synchronous = off")
        # Handlers in threads share the connection. A thread that waits for its mutex inside SQLite keeps the GIL, so the thread
        # with the file's lock cannot give it back: the process stood still for the whole 60 s in 2 of 75 runs of `lab renewal`.
        self._one_at_a_time = threading.Lock()

    def apply(self, job: str, lease: int) -> bool:
        """Take an effect; False when a later lease has been here."""
        with self._one_at_a_time:
            taken = self._con.execute(
                "insert into effect (job, lease) values (?, ?) on conflict (job) do update"
                " set lease = excluded.lease, times = times + 1 where excluded.lease >= lease returning 1",
                (job, lease),
            ).fetchall()
        return bool(taken)

    def effects(self) -> dict[str, int]:
        """How often each job's effect was asked for and taken."""
        return dict(self._con.execute("select job, times from effect").fetchall())

    def close(self) -> None:
        self._con.close()
