"""Workers of an attack case, on the kind of store that the case names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawser import Hawser
from tests.drills.places import PostgresPlace
from tests.worker.processes import Fleet, fleet


@contextmanager
def ships_on(folder: Path, store: str) -> Iterator[Fleet]:
    with fleet(folder) as ships:
        if store == "sqlite":
            yield ships
            return
        place = PostgresPlace()
        try:
            ships.url = ships.environ["HAWSER_STORE"] = place.url(10)
            yield ships
        finally:
            ships.end()
            place.close()


def app_of(ships: Fleet) -> Hawser:
    from tests.worker import tasks  # its store is the one of the environment, which this case has just made

    tasks.app.use_store(ships.url)
    return tasks.app
