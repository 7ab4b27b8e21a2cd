"""Where a drill keeps its jobs, and what can be done to that place from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import psycopg

from hawser.lab.cluster import Cluster
from tests.worker.processes import held


class Place(Protocol):
    """A store under a drill."""

    def url(self, timeout: float) -> str: ...

    def away(self) -> AbstractContextManager[object]:
        """Nobody reaches the store."""

    def stale_writes(self) -> int:
        """Writes that the fence refused, by the store's own count."""

    def close(self) -> None: ...


class SqlitePlace:
    """A file in the drill's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "jobs.db"

    def url(self, timeout: float) -> str:
        return f"sqlite:///{self._path}?timeout={timeout:g}"

    def away(self) -> AbstractContextManager[object]:
        return held(self._path)

    def stale_writes(self) -> int:
        tally = sqlite3.connect(self._path)
        return int(tally.execute("select coalesce(sum(count), 0) from hawser_tally where event = 'stale'").fetchone()[0])

    def close(self) -> None:
        pass


class PostgresPlace:
    """A durable server of the drill's own."""

    def __init__(self) -> None:
        self._cluster = Cluster(settings={"max_connections": 200})
        self._cluster.__enter__()

    def url(self, timeout: float) -> str:
        return f"{self._cluster.url}&timeout={timeout:g}"

    @contextmanager
    def away(self) -> Iterator[None]:
        self._cluster.stop()
        try:
            yield
        finally:
            self._cluster.start()

    def stale_writes(self) -> int:
        both = "select name, count from hawser.tally union all select name, count from hawser.counted"
        with psycopg.connect(self._cluster.url) as con:
            row = con.execute(f"select coalesce(sum(count), 0) from ({both}) as c where name = 'stale'").fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._cluster.remove()
