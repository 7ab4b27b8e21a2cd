"""Ships: workers that are killed, frozen and restarted on purpose, on a real store, with nothing left behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from hawser import Hawser, State
from hawser.errors import ConfigError
from hawser.lab import process_tree
from hawser.lab.chaos import processes
from hawser.lab.chaos.clock import WrongClock
from hawser.lab.chaos.memory import limited
from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.processes import UnitFlags, UnitLaunch, WorkerUnit
from tests.postgres import new_schema, server, versions, with_schema
from tests.worker.processes import eventually, group_of, settled

APP = "tests.worker.tasks:app"


class Yard:
    """Ships on one SQLite file, and the app that their jobs are of."""

    def __init__(self, folder: Path, app: Hawser) -> None:
        self.folder, self.app = folder, app
        self.url = f"sqlite:///{folder}/jobs.db?timeout=10"
        self.journal = folder / "journal"
        self.built: list[WorkerUnit] = []

    def unit(self, *, environ: Mapping[str, str] = MappingProxyType({}), within: Sequence[str] = (), **flags) -> WorkerUnit:
        launch = UnitLaunch({"HAWSER_TEST_JOURNAL": str(self.journal), **environ}, within)
        unit = WorkerUnit(APP, self.url, self.folder, f"unit{len(self.built)}", flags=UnitFlags(**flags), launch=launch)
        self.built.append(unit)
        unit.start()
        eventually(lambda: len(unit.children()) > 0 and "is ready" in unit.said(), 20, unit.said)
        return unit

    def starts(self) -> int:
        return self.journal.read_text().count("start") if self.journal.exists() else 0


@pytest.fixture
def yard(tmp_path) -> Iterator[Yard]:
    from tests.worker import tasks

    tasks.app.close()
    yard = Yard(tmp_path, tasks.app)
    tasks.app.use_store(yard.url)
    try:
        yield yard
    finally:
        for unit in yard.built:
            unit.end()
        tasks.app.close()
    eventually(lambda: not any(group_of(unit.pid) for unit in yard.built), 5)


def test_a_killed_process_is_replaced_and_its_job_is_done(yard):
    from tests.worker.tasks import nap

    unit = yard.unit(processes=1, lease=1)
    job = nap.enqueue(0.5)
    eventually(yard.starts)
    [old] = unit.children()
    unit.kill_child(old)
    eventually(lambda: unit.children() not in ([], [old]))
    eventually(lambda: yard.app.get(job.id).state is State.DONE)
    assert yard.app.get(job.id).attempt == 2


def test_a_killed_supervisor_takes_its_processes_along_and_starts_again(yard):
    unit = yard.unit(processes=2)
    crew = unit.crew()
    assert len(crew) == 3
    unit.kill_supervisor()
    assert not any(map(process_tree.lives, crew))
    assert unit.pid not in crew
    eventually(lambda: len(unit.children()) == 2)


def test_a_frozen_ship_stands_still_until_it_is_thawed(yard):
    from tests.worker.tasks import nap

    unit = yard.unit(processes=1)
    unit.freeze()
    eventually(lambda: all(map(process_tree.is_stopped, unit.crew())))
    job = nap.enqueue(0.01)
    assert yard.app.get(job.id).state is State.READY, "the frozen unit holds no lock of the file, and claims nothing"
    unit.thaw()
    eventually(lambda: yard.app.get(job.id).state is State.DONE)


def test_one_process_can_be_frozen_alone(yard):
    unit = yard.unit(processes=1)
    [child] = unit.children()
    unit.freeze(child)
    eventually(lambda: process_tree.is_stopped(child))
    assert not process_tree.is_stopped(unit.pid)
    unit.thaw(child)
    assert not process_tree.is_stopped(child)


def test_a_restart_drains_and_starts_again(yard):
    from tests.worker.tasks import nap

    unit = yard.unit(processes=1)
    job = nap.enqueue(0.5)
    eventually(yard.starts)
    old = unit.pid
    assert unit.restart() == 0
    assert yard.app.get(job.id).state is State.DONE
    assert yard.app.get(job.id).attempt == 1
    assert unit.pid != old


def test_a_frozen_ship_can_be_ended(yard):
    unit = yard.unit(processes=1)
    unit.freeze()
    unit.end()
    assert not process_tree.lives(unit.pid)


def test_a_plan_of_everything_loses_no_job(yard):
    from tests.worker.tasks import nap

    units = [yard.unit(processes=2, slots=8, lease=1) for _ in range(2)]
    handles = yard.app.enqueue_many([nap.job(0.05) for _ in range(200)])
    faults = {
        "kill": (4, processes.kill_process(units)),
        "kill a supervisor": (1, processes.kill_supervisor(units)),
        "settle late": (1, processes.settle_late(units)),
        "freeze": (1, processes.freeze(units, leases=1.5)),
        "restart": (1, processes.restart(units)),
    }
    made = Plan(faults, seed=3, every=(0.05, 0.2)).run(times=10)
    assert made.total() == 10
    assert len(made) > 2
    eventually(lambda: settled(yard.app), 60)
    assert all(yard.app.get(handle.id).state in (State.DONE, State.DEAD) for handle in handles)


# Clock and memory.


@pytest.mark.parametrize("ahead", [3_600, -3_600])
def test_a_worker_with_a_wrong_clock_works_as_any_other(yard, ahead):
    """On PostgreSQL: the time is the server's. On SQLite all processes share this machine's clock, so theirs is the store's."""
    from tests.worker.tasks import thread_nap

    yard.url = with_schema(server(versions()[-1]), new_schema())
    yard.app.use_store(yard.url)
    with WrongClock(ahead) as clock:
        unit = yard.unit(processes=1, lease=1, environ=clock.environ)
        job = thread_nap.enqueue(1.5)
        later = thread_nap.using(delay=1.0).enqueue(0.01)
        eventually(lambda: yard.app.get(job.id).state.finished, 20, unit.said)
        eventually(lambda: yard.app.get(later.id).state.finished, 20, unit.said)
        found = yard.app.get(job.id)
        assert (found.state, found.attempt, found.crashes) == (State.DONE, 1, 0), "a lease of 1 s was held for 1.5 s"
        assert found.started_at is not None
        assert abs(found.started_at.timestamp() - time.time()) < 60, "told by the server's clock"
        assert time.strftime("%H:", time.gmtime(time.time() + ahead)) in unit.said()[:3], "its log has the time that it sees"
        unit.end()


def test_a_clock_can_be_set_while_somebody_looks_at_it():
    import subprocess

    look = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    with WrongClock() as clock:
        process = subprocess.Popen(
            [sys.executable, "-c", look], env={**os.environ, **clock.environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            for ahead in (0.0, 3_600.0, -86_400.0, 0.5):
                clock.set(ahead)
                process.stdin.write(b"look\n")
                process.stdin.flush()
                wall, steady = map(float, process.stdout.readline().split())
                assert abs(wall - time.time() - ahead) < 0.3
                assert abs(steady - time.monotonic()) < 0.3
            process.stdin.close()


def test_without_a_compiler_it_is_said_what_to_install():
    with pytest.raises(ConfigError, match="install the Debian package gcc"):
        WrongClock(3_600, compilers=["no-such-compiler"])


def test_a_worker_gets_no_more_memory_than_it_may_have(yard):
    unit = yard.unit(processes=1, within=limited(2**30), others=("--isolates", "1"))
    limits = Path(f"/proc/{unit.children()[0]}/limits").read_text()
    assert f"Max address space         {2**30}" in limits
    with pytest.raises(ConfigError, match="give at least"):
        limited(1_000)


def test_what_asks_for_more_than_the_limit_gets_an_error():
    import subprocess

    hoard = [*limited(2**28), sys.executable, "-c", "bytearray(2**29)"]
    assert b"MemoryError" in subprocess.run(hoard, capture_output=True, check=False).stderr
