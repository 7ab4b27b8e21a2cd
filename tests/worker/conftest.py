"""A worker on a memory store, on the test's own event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from hawser import Hawser, Job
from hawser.supervisor.board_reader import BoardReader
from hawser.supervisor.embedded import embedded
from hawser.telemetry.events import Events
from hawser.worker.board import Board, board_size
from hawser.worker.options import WorkerOptions, checked


class Heard(Events):
    """Keeps count of what a worker says of itself."""

    def __init__(self) -> None:
        self.stale = 0
        self.given_up = 0
        self.runs_lost = 0
        self.claims: list[int] = []

    def claimed(self, batch):
        self.claims.append(len(batch.jobs))

    def settled(self, batch):
        self.stale += sum(answer == "lease_lost" for answer in batch.answers)

    def dropped(self, count):
        self.given_up += count

    def lost(self, count):
        self.runs_lost += count


def board_and_reader(cells: int) -> tuple[Board, BoardReader]:
    """A board as the process sees it that runs the jobs, and as its supervisor does."""
    memory = bytearray(board_size(cells))
    return Board(memory, cells), BoardReader(memory, cells)


@pytest.fixture
def app() -> Hawser:
    return Hawser("memory://")


@pytest.fixture
def patience() -> float:
    """Seconds that a job has to come to what is wanted; with a planted bug it never does."""
    return 30


@pytest.fixture
def heard() -> Heard:
    return Heard()


@asynccontextmanager
async def working(app: Hawser, heard: Events | None = None, **options) -> AsyncIterator[asyncio.Event]:
    """A worker that runs meanwhile, then drains."""
    stop = asyncio.Event()
    worker = asyncio.ensure_future(embedded(app, checked(**{"drain_timeout": 2, **options}), stop, spec=None, events=heard))
    try:
        yield stop
    finally:
        stop.set()
        await worker


async def ended(app: Hawser, id: str, seconds: float = 10) -> Job:
    """The job, once it has come to its end."""
    return await until(lambda job: job.state.finished, app, id, seconds)


async def until(wanted: Callable[[Job], bool], app: Hawser, id: str, seconds: float = 10) -> Job:
    async with asyncio.timeout(seconds):
        while not wanted(job := await app.aget(id)):
            await asyncio.sleep(0.005)
    return job


__all__ = ["Heard", "WorkerOptions", "ended", "until", "working"]
