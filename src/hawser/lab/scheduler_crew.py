"""Many schedulers in a few processes. Each knows nothing of the others; those of a process share its connections.

python -m hawser.lab.scheduler_crew COUNT: so many in this process, on the store that HAWSER_STORE names, until SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from hawser.cycle import Cycle
from hawser.lab.load import Crew
from hawser.stores import make_store
from hawser.upkeep.scheduler import Scheduler
from hawser.worker.loop import run_loop
from hawser.worker.signals import stop_on_signals

CREW_PROCESSES: Final = 4
"""Processes for as many schedulers as there are: they cost the same in few as in many, and the memory of few."""


@contextmanager
def schedulers(url: str, count: int, folder: Path) -> Iterator[list[Crew]]:
    """So many schedulers, ended in the end."""
    crews: list[Crew] = []
    with ExitStack() as ending:
        for number in range(min(count, CREW_PROCESSES)):
            some = count // CREW_PROCESSES + (number < count % CREW_PROCESSES)
            log = folder / f"schedulers-{number}.log"
            with log.open("ab") as said:
                process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-m", "hawser.lab.scheduler_crew", str(some)],
                    env={**os.environ, "HAWSER_STORE": url},
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )
            crews.append(Crew(process, log))
            ending.callback(crews[-1].end)
        for crew in crews:
            # All are told to stop before any is waited for.
            ending.callback(_stop, crew.process)
        yield crews


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)


async def _serve(url: str, count: int) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    store = make_store(url)
    await store.open()
    cycles = [Cycle("scheduler", Scheduler(store).turn) for _ in range(count)]
    for cycle in cycles:
        cycle.start()
    await stop.wait()
    for cycle in cycles:
        await cycle.stop()
    await store.close()


if __name__ == "__main__":
    run_loop(_serve(os.environ["HAWSER_STORE"], int(sys.argv[1])))
