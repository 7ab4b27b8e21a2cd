"""Where a drill keeps its jobs, and what can be done to that place from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg

from hawser.lab.cluster import Cluster
from hawser.stores.tally import STALE_EXTENSION
from tests.worker.processes import held


class Stale(NamedTuple):
    """Writes that the fence refused."""

    settlements: int
    extensions: int


def stale_of(counts: Sequence[Any]) -> Stale:
    """From the store's events and how often each happened."""
    by_name = {name: int(count) for name, count in counts}
    return Stale(by_name.get("stale", 0), by_name.get(STALE_EXTENSION, 0))


class Place(Protocol):
    """A store under a drill."""

    def url(self, timeout: float) -> str: ...

    def away(self) -> AbstractContextManager[object]:
        """Nobody reaches the store."""

    def stale_writes(self) -> Stale:
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

    def stale_writes(self) -> Stale:
        with closing(sqlite3.connect(self._path)) as con:
            return stale_of(con.execute("select event, sum(count) from hawser_tally group by event").fetchall())

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

    def stale_writes(self) -> Stale:
        both = "select name, count from hawser.tally union all select name, count from hawser.counted"
        with psycopg.connect(self._cluster.url) as con:
            return stale_of(con.execute(f"select name, sum(count) from ({both}) as c group by name").fetchall())

    def close(self) -> None:
        self._cluster.remove()
