"""Workers fire what their code declares, and their handlers are told the tick."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawser import ConfigError, Context, Every, Hawser, State
from hawser.supervisor.embedded import embedded
from hawser.worker.options import checked
from tests.worker.conftest import working
from tests.worker.processes import Fleet, eventually, fleet

TICKING = """
from hawser import Context, Every, Hawser

app = Hawser()

@app.task(schedule=Every(seconds=1, payload={"word": "tick"}))
async def tell(ctx: Context, word: str) -> str:
    return f"{word} {ctx.job.schedule} {ctx.job.tick.isoformat()}"

@app.task(isolate=True, schedule=Every(seconds=1))
def tell_apart(ctx: Context) -> str:
    return ctx.job.tick.isoformat()
"""


@pytest.fixture
def ships(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as found:
        yield found


async def test_an_embedded_worker_fires_its_schedules(app: Hawser):
    @app.task(schedule=Every(seconds=1))
    async def tick(ctx: Context) -> str:
        return f"{ctx.job.tick}"

    async with working(app), asyncio.timeout(20):
        while not (jobs := (await app.afind(schedule="tick", state=State.DONE)).jobs):
            await asyncio.sleep(0.02)
    assert jobs[0].result == f"{jobs[0].tick}"
    assert (await app.schedules.aget("tick")).fired >= 1


async def test_a_worker_whose_schedule_is_wrong_does_not_start(app: Hawser):
    @app.task(schedule=Every(seconds=1))
    async def tick(needed: int) -> None: ...

    with pytest.raises(ConfigError, match=r"schedule 'tick': payload\.needed: missing"):
        await embedded(app, checked(), asyncio.Event(), spec=None)


def test_two_workers_fire_each_tick_once_and_run_it(ships: Fleet, tmp_path: Path):
    (tmp_path / "ticking.py").write_text(TICKING)
    spec = f"{tmp_path}/ticking.py:app"
    for _ in range(2):
        ships.start("--slots", "4", app=spec)
    with Hawser(ships.url) as app:
        eventually(lambda: len(app.find(task="tell", state="done").jobs) >= 3)
        eventually(lambda: len(app.find(task="tell_apart", state="done").jobs) >= 1)
        for job in app.find(task="tell", state="done").jobs:
            assert job.tick is not None
            assert job.result == f"tick tell {job.tick.isoformat()}"
        ticks = [(job.schedule, job.tick) for job in app.find(limit=1000).jobs]
        assert len(ticks) == len(set(ticks))


def test_a_supervised_worker_whose_schedule_is_wrong_says_so(ships: Fleet, tmp_path: Path):
    (tmp_path / "wrong.py").write_text(TICKING.replace('payload={"word": "tick"}', 'payload={"wrod": "tick"}'))
    worker = ships.start(app=f"{tmp_path}/wrong.py:app", ready=False)
    assert worker.wait(60) == 2
    assert "schedule 'tell': payload.word: missing" in ships.log(worker)
