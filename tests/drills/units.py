"""Workers of an attack case, on the kind of store that the case names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawser import Hawser
from tests.drills.places import PostgresPlace
from tests.redis_servers import RunningServer
from tests.worker.processes import Fleet, fleet


@contextmanager
def units_on(folder: Path, store: str) -> Iterator[Fleet]:
    with fleet(folder) as units:
        if store == "sqlite":
            yield units
            return
        if store == "redis":
            server = RunningServer("valkey").start()
            try:
                units.url = units.environ["HAWSER_STORE"] = f"{server.url}?timeout=10"
                yield units
            finally:
                units.end()
                server.stop()
            return
        place = PostgresPlace()
        try:
            units.url = units.environ["HAWSER_STORE"] = place.url(10)
            yield units
        finally:
            units.end()
            place.close()


def app_of(units: Fleet) -> Hawser:
    from tests.worker import tasks  # its store is the one of the environment, which this case has just made

    tasks.app.use_store(units.url)
    return tasks.app
