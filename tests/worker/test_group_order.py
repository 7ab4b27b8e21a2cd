"""The order of groups, with real workers that are killed while they run."""

import os
import random
import signal
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest

from hawser import Hawser
from tests.postgres import new_schema, server, versions, with_schema
from tests.redis_servers import own_store, shared
from tests.repetition import times
from tests.worker.processes import Fleet, eventually, fleet, settled

LINES = ("a", "b", "c")
KILLS = times(3, 12)
JOBS_OF_A_LINE = 4 * KILLS


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def ships(request, tmp_path: Path):
    with fleet(tmp_path) as ships:
        if request.param == "postgres":
            ships.url = with_schema(server(versions()[-1]), new_schema())
        if request.param == "redis":
            ships.url = own_store(shared("valkey"))
        ships.environ["HAWSER_STORE"] = ships.url
        yield ships


def have_started(ships: Fleet, count: int) -> bool:
    return len(ships.starts()) >= count


def killed_the_last(ships: Fleet) -> bool:
    """False while the process that started the last job is one that was killed before."""
    try:
        os.kill(ships.starts()[-1].pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_jobs_of_a_group_start_in_their_order_though_workers_are_killed(ships: Fleet):
    dice = random.Random(4)  # which worker is killed, and when
    with Hawser(ships.url) as app:

        @app.task(group="line", max_attempts=200)
        async def in_line(line: str, n: int) -> None: ...

        workers = [ships.start("--lease", "1", "--slots", "4", "--processes", "2") for _ in range(2)]
        line_of = {}
        for n in range(JOBS_OF_A_LINE):
            for line in LINES:
                line_of[in_line.enqueue(line, n).id] = line
        for kill in range(1, KILLS + 1):
            eventually(partial(have_started, ships, kill * 8), 60)
            if kill % 2:  # a worker process, or all of a worker
                eventually(partial(killed_the_last, ships), 60)
            else:
                gone = dice.randrange(2)
                os.killpg(workers[gone].pid, signal.SIGKILL)
                workers[gone] = ships.start("--lease", "1", "--slots", "4", "--processes", "2")
        eventually(lambda: settled(app), 120)
        assert app.stats().done == len(line_of)
    for line in LINES:
        wanted = [id for id, of in line_of.items() if of == line]
        started = [start.id for start in ships.starts() if line_of[start.id] == line]
        # A job may start several times. No other of its group starts in between, or before it has ended.
        assert [id for id, _ in groupby(started)] == wanted
        assert len(started) > len(wanted)
