"""The places of child processes: each comes back, however its process ends."""

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest

from hawser.worker import isolates
from hawser.worker.isolates import Isolate, Isolates


class SlowToEnd:
    """A process that takes its time to be gone."""

    fault = None

    def __init__(self) -> None:
        self.runs, self.ends = asyncio.Event(), asyncio.Event()

    async def run(self, run: object, policy: object) -> None:
        self.runs.set()
        await asyncio.sleep(60)

    def kill_now(self) -> None:
        pass

    async def kill(self) -> None:
        self.ends.set()
        await asyncio.to_thread(time.sleep, 0.3)


class ARun:
    class task:  # noqa: N801
        class options:  # noqa: N801
            backoff = None

    job = None
    stop = None


async def test_a_run_that_is_stopped_twice_gives_its_place_back():
    """Cancelled by an operator, and by its timeout while its process is being ended."""
    places = Isolates("app", "store", 0)
    process = SlowToEnd()
    run = asyncio.create_task(places.run(cast("Isolate", process), cast("Any", ARun), None))
    for moment in (process.runs, process.ends):
        await asyncio.wait_for(moment.wait(), 10)
        run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await places.close()
    assert places._places == 1


async def test_a_process_that_hangs_up_and_lives_on_is_no_place_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(isolates, "END_WITHIN", 0.2)
    (tmp_path / "hangs_up.py").write_text("import os, time\nos.closerange(3, 256)\ntime.sleep(60)\n")
    places = Isolates(f"{tmp_path}/hangs_up.py:app", f"sqlite:///{tmp_path}/jobs.db", 1)
    places.keep_ready()
    async with asyncio.timeout(20):
        while not places.free:
            await asyncio.sleep(0.05)
    places.keep_no_more()
    isolate = places.take()
    assert isolate is not None
    assert isolate.fault == "its process closed its connection before it was ready"
    await places.run(isolate, cast("Any", type("R", (ARun,), {"job": type("J", (), {"attempt": 1})})), None)
    await places.close()
    assert places._places == 1
