"""Workers as processes: signals, crashes, frozen ones, and what is left behind."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hawser import Fixed, Hawser, State, StoreUnavailable
from hawser.supervisor.supervisor import FALSE_STARTS
from tests.worker.processes import ROOT, Fleet, cpu_of, eventually, fleet, group_of, held, settled, workers_of


@pytest.fixture
def ships(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as found:
        yield found


@pytest.fixture
def app(ships: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hawser]:
    """The same tasks here, to enqueue and to look."""
    from tests.worker import tasks

    tasks.app.close()
    tasks.app.use_store(ships.url)
    yield tasks.app
    tasks.app.close()


def test_sigterm_with_two_hundred_in_flight_finishes_or_hands_back_each_exactly_once(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap, thread_nap

    short = app.enqueue_many([nap.job(1.0) for _ in range(100)])
    long = app.enqueue_many([nap.job(60) for _ in range(80)])
    stuck = app.enqueue_many([thread_nap.job(60) for _ in range(20)])
    worker = ships.start("--slots", "200", "--drain-timeout", "2")
    eventually(lambda: len(ships.starts()) == 200)
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert time.monotonic() - began < 2 + 1.5, "the drain timeout was not honoured"
    assert group_of(worker.pid) == []
    assert {app.get(handle.id).state for handle in short} == {State.DONE}
    for handle in (*long, *stuck):
        job = app.get(handle.id)
        assert (job.state, job.attempt, job.returned, job.errors) == (State.READY, 0, 1, ())
    assert max(Counter(start.id for start in ships.starts()).values()) == 1


def test_a_second_signal_ends_at_once(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap

    nap.enqueue(60)
    worker = ships.start("--drain-timeout", "60")
    eventually(ships.starts)
    worker.send_signal(signal.SIGINT)
    eventually(lambda: "draining for up to" in ships.log(worker))
    worker.send_signal(signal.SIGINT)
    assert worker.wait(2) == 128 + signal.SIGINT
    eventually(lambda: not group_of(worker.pid), 2)


@pytest.mark.parametrize("task", ["block_the_loop", "hold_the_gil"])
def test_a_handler_that_blocks_everything_for_three_leases_keeps_its_job(ships: Fleet, app: Hawser, task: str):
    handle = app.enqueue(task, {"seconds": 3.5})
    first = ships.start("--lease", "1", "--slots", "4")
    second = ships.start("--lease", "1", "--slots", "4")
    eventually(lambda: app.get(handle.id).state.finished, 30)
    job = app.get(handle.id)
    assert (job.state, job.attempt, job.errors) == (State.DONE, 1, ())
    assert len(ships.starts(handle.id)) == 1
    assert "reclaimed" not in ships.log(first) + ships.log(second)


def test_no_process_outlives_a_supervisor_that_was_killed(ships: Fleet, app: Hawser):
    app.enqueue("isolated_report", {"seconds": 30})
    worker = ships.start("--processes", "2", "--slots", "2")
    eventually(lambda: len(ships.starts()) == 1)
    app.enqueue("hold_the_gil", {"seconds": 30})
    eventually(lambda: len(ships.starts()) == 2)
    assert len(group_of(worker.pid)) >= 4
    worker.send_signal(signal.SIGKILL)
    worker.wait(30)
    eventually(lambda: group_of(worker.pid) == [], 1.5)


def test_a_killed_process_is_replaced_and_its_jobs_start_again_without_waiting_for_the_lease(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap

    handle = nap.enqueue(1.0)
    worker = ships.start("--lease", "60")
    eventually(ships.starts)
    os.kill(ships.starts()[0].pid, signal.SIGKILL)
    eventually(lambda: app.get(handle.id).state.finished, 15)
    job = app.get(handle.id)
    assert (job.state, job.attempt, job.crashes) == (State.DONE, 2, 1)
    assert str(job.errors[0]) == "the worker process was killed by signal 9 (SIGKILL) while running"
    assert worker.poll() is None


def test_beside_a_newer_schema_what_runs_goes_on_and_a_new_process_refuses(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap

    worker = ships.start("--processes", "2")
    eventually(lambda: ships.log(worker).count("is ready") == 2)
    app.open()
    with closing(sqlite3.connect(ships.folder / "jobs.db")) as con:
        [version] = con.execute("select value from hawser_meta where name = 'schema'").fetchone()
        con.execute("update hawser_meta set value = '999' where name = 'schema'")
        con.commit()
        killed, stays = workers_of(worker.pid)
        os.kill(killed, signal.SIGKILL)
        # Also after more deaths than would end a worker that never came up.
        refusal = f"the schema has version 999, this Hawser knows {version}; upgrade Hawser"
        eventually(lambda: ships.log(worker).count(refusal) > FALSE_STARTS, 60, lambda: ships.log(worker))
        handles = [nap.enqueue(0.0) for _ in range(20)]
        eventually(lambda: all(app.get(handle.id).state is State.DONE for handle in handles), 20, lambda: ships.log(worker))
        assert worker.poll() is None
        assert stays in workers_of(worker.pid)
        con.execute("update hawser_meta set value = ? where name = 'schema'", (version,))
        con.commit()
    eventually(lambda: ships.log(worker).count("is ready") == 3, 40, lambda: ships.log(worker))


def test_poison_of_every_kind_is_dead_after_exactly_max_attempts_and_the_healthy_go_on(ships: Fleet, app: Hawser):
    from tests.worker.tasks import memory_bomb, nap, poison

    bad = {kind: poison.enqueue(kind) for kind in ("raise", "os._exit", "segfault", "kill")}
    bad["memory"] = memory_bomb.enqueue()
    good = app.enqueue_many([nap.job(0.05) for _ in range(200)])
    worker = ships.start("--processes", "2", "--slots", "20", "--lease", "5")
    eventually(lambda: settled(app), 60, lambda: ships.log(worker))
    for kind, handle in bad.items():
        job = app.get(handle.id)
        assert (job.state, job.attempt, len(job.attempts)) == (State.DEAD, 3, 3), kind
        # A process may die between the claim and the first line of the handler: the store counts more than we can see.
        assert 1 <= len(ships.starts(handle.id)) <= 3, kind
    assert "exit code 7 while running" in str(app.get(bad["os._exit"].id).errors[-1])
    assert "signal 11 (SIGSEGV) while running" in str(app.get(bad["segfault"].id).errors[-1])
    assert "MemoryError" in str(app.get(bad["memory"].id).errors[-1])
    for handle in good:
        assert app.get(handle.id).state is State.DONE
    assert len([pid for pid in group_of(worker.pid) if pid != worker.pid]) >= 2, "the pool did not refill"


def test_a_frozen_worker_that_wakes_up_settles_nothing(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap, thread_nap

    handles = [nap.enqueue(2.0), thread_nap.enqueue(2.0)]
    frozen = ships.start("--lease", "2", "--slots", "2")
    eventually(lambda: len(ships.starts()) == 2)
    ships.freeze(frozen)
    other = ships.start("--lease", "2", "--slots", "2")
    eventually(lambda: len(ships.starts()) >= 4, 30, lambda: ships.log(other))
    os.killpg(frozen.pid, signal.SIGCONT)
    eventually(lambda: settled(app), 20)
    # A run that is still on is ended; one whose handler ended in the same moment is not settled. Either way it is told.
    eventually(lambda: re.search("its lease is gone|outcomes were dropped", ships.log(frozen)), 5)
    for handle in handles:
        job = app.get(handle.id)
        assert job.state is State.DONE
        assert job.attempts[0].outcome == "lost"
        assert job.attempts[-1].worker != job.attempts[0].worker
    assert other.poll() is None


def test_a_handler_that_blocks_past_its_timeout_costs_its_process_not_the_others_jobs(ships: Fleet, app: Hawser):
    from tests.worker.tasks import block_past_the_timeout, nap

    innocent = nap.using(max_attempts=1).enqueue(1.0)
    worker = ships.start("--slots", "5")
    eventually(lambda: ships.starts(innocent.id))
    guilty = block_past_the_timeout.enqueue()
    eventually(lambda: settled(app), 30, lambda: ships.log(worker))
    job = app.get(guilty.id)
    assert job.state is State.DEAD
    assert str(job.errors[0]).startswith("timeout: the handler blocked its worker process past the timeout")
    job = app.get(innocent.id)
    assert (job.state, job.attempt, job.returned, job.crashes) == (State.DONE, 1, 1, 0), str(job.errors)


def test_isolated_handlers_are_killed_at_their_timeout_and_report_on_the_way(ships: Fleet, app: Hawser):
    from tests.worker.tasks import isolated_hang, isolated_report

    hang, report = isolated_hang.enqueue(), isolated_report.enqueue(1.5)
    worker = ships.start("--lease", "3")
    eventually(lambda: app.get(report.id).progress == "half way", 15)
    eventually(lambda: settled(app), 30, lambda: ships.log(worker))
    assert str(app.get(hang.id).errors[0]) == "timeout: the attempt took longer than 1 s"
    done = app.get(report.id)
    assert done.state is State.DONE
    assert done.result not in (worker.pid, *[start.pid for start in ships.starts(hang.id)])


def test_the_time_that_a_child_process_takes_to_start_is_not_the_isolated_handlers(ships: Fleet):
    from tests.worker import heavy

    heavy.app.use_store(ships.url)
    quick, hangs = heavy.quick.enqueue(), heavy.hangs.enqueue()
    worker = ships.start("--isolates", "2", app="tests.worker.heavy:app")
    eventually(lambda: settled(heavy.app), 40, lambda: ships.log(worker))
    job = heavy.app.get(quick.id)
    assert (job.state, job.attempt, job.crashes) == (State.DONE, 1, 0), str(job.errors)
    job = heavy.app.get(hangs.id)
    assert (job.state, job.attempt, job.crashes) == (State.DEAD, 1, 0)
    assert str(job.errors[0]) == "timeout: the attempt took longer than 1 s"
    heavy.app.close()


def test_a_cancelled_isolated_handler_may_stop_by_itself(ships: Fleet, app: Hawser):
    from tests.worker.tasks import isolated_report

    handle = isolated_report.enqueue(60)
    ships.start("--lease", "1.5")
    eventually(ships.starts)
    app.cancel(handle.id)
    eventually(lambda: app.get(handle.id).state.finished, 15)
    assert app.get(handle.id).state is State.DONE, "it returned early, by its own will"


SLOW_LOGS = """
import sys, time
from hawser.telemetry.lines import LineHandler
write = LineHandler._written
LineHandler._written = lambda self, data: time.sleep(0.2) or write(self, data)
from hawser.cli import main
sys.argv = ["hawser", "worker", "tests.worker.tasks:nothing"]
main()
"""


def test_the_error_is_written_before_the_end_however_slow_the_reader(ships: Fleet):
    done = subprocess.run(
        [sys.executable, "-c", SLOW_LOGS], check=False, cwd=ROOT, env=ships.environ, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (2, "error: app: 'tests.worker.tasks' has no attribute 'nothing'; it has app\n")


@pytest.mark.parametrize(
    ("app_name", "text"),
    [
        ("tests.worker.nothing:app", "no module 'tests.worker.nothing'"),
        ("tests.worker.tasks:nothing", "it has app"),
        ("tests/worker/nowhere.py:app", "there is no file"),
    ],
)
def test_an_app_that_cannot_be_found_is_told_at_once(ships: Fleet, app_name: str, text: str):
    worker = ships.start(app=app_name, ready=False)
    assert worker.wait(15) == 2
    assert text in ships.log(worker)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('no database password')", "RuntimeError: no database password, at {file}:2"),
        (
            "from hawser import Hawser; app = Hawser(); app.task(max_attempts=0)(os.getpid)",
            "max_attempts: 0 is not a whole number from 1 to 2147483647, at {file}:2",
        ),
    ],
    ids=["raises", "a wrong setting"],
)
def test_an_app_that_breaks_at_import_is_told_in_one_line_with_its_place(ships: Fleet, text: str, said: str):
    file = ships.folder / "broken.py"
    file.write_text(f"import os\n{text}\n")
    worker = ships.start(app=str(file), ready=False)
    assert worker.wait(60) == 2
    assert said.format(file=file) in ships.log(worker)
    assert "Traceback" not in ships.log(worker)


def test_a_store_that_is_away_at_the_start_is_no_wrong_option(ships: Fleet):
    worker = ships.start("--store", "postgresql://nobody@127.0.0.1:9/none", ready=False)
    assert worker.wait(60) == 1
    assert "cannot connect to PostgreSQL at 127.0.0.1:9/none" in ships.log(worker)


def test_processes_follow_the_load_up_and_down_and_up_again_and_each_job_runs_once(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap

    worker = ships.start("--processes", "1..3", "--slots", "4", "--scale-down-after", "1")

    def processes() -> int:
        return len(workers_of(worker.pid))

    def busy() -> set[str]:
        return {handle.id for handle in app.enqueue_many([nap.job(0.4) for _ in range(120)])}

    ids = busy()
    eventually(lambda: processes() >= 2, 30, lambda: ships.log(worker))
    eventually(lambda: settled(app), 60)
    while processes() > 1:
        # Little to do, but never nothing: what is drained has jobs.
        ids.add(nap.enqueue(0.8).id)
        time.sleep(0.3)
        assert len(ids) < 400, ships.log(worker)
    ids |= busy()
    eventually(lambda: processes() >= 2, 30, lambda: ships.log(worker))
    eventually(lambda: settled(app), 60)
    assert Counter(start.id for start in ships.starts()) == Counter(ids)
    assert {(job.state, job.attempt) for job in map(app.get, ids)} == {(State.DONE, 1)}
    assert "little to do" in ships.log(worker)


def test_isolated_jobs_are_claimed_only_as_child_processes_are_free(ships: Fleet, app: Hawser):
    from tests.worker.tasks import isolated_quick

    handles = app.enqueue_many([isolated_quick.job() for _ in range(6)])
    ships.start("--isolates", "1", "--slots", "6")
    eventually(lambda: settled(app), 30)
    for handle in handles:
        job = app.get(handle.id)
        assert (job.state, job.attempt, job.errors) == (State.DONE, 1, ()), str(job.errors)


def test_isolated_jobs_of_several_tasks_that_find_one_child_process_all_run_with_their_one_attempt(ships: Fleet, app: Hawser):
    from tests.worker.tasks import isolated_quick, isolated_report

    jobs = [job for _ in range(2) for job in (isolated_quick.job(), isolated_report.using(max_attempts=1).job(0.3))]
    handles = app.enqueue_many(jobs)
    ships.start("--isolates", "1", "--slots", "6")
    eventually(lambda: settled(app), 30)
    found = [app.get(handle.id) for handle in handles]
    assert [(job.state, job.attempt, job.errors) for job in found] == [(State.DONE, 1, ())] * 4


def test_an_isolated_attempt_that_failed_adds_no_jobs(ships: Fleet, app: Hawser):
    from tests.worker.tasks import isolated_unwritable

    handle = isolated_unwritable.enqueue()
    ships.start()
    eventually(lambda: app.get(handle.id).state.finished, 20)
    job = app.get(handle.id)
    assert (job.state, job.attempt) == (State.DEAD, 2)
    assert "the result cannot be written as JSON" in str(job.errors[0])
    assert app.find(parent_id=handle.id).jobs == []


def test_a_store_that_was_built_by_hand_is_refused_by_a_supervised_worker(ships: Fleet):
    (ships.folder / "built.py").write_text(
        "from hawser import Hawser\nfrom hawser.stores.memory import MemoryStore\napp = Hawser(MemoryStore())\n"
    )
    worker = ships.start(app=f"{ships.folder}/built.py", ready=False)
    assert worker.wait(20) == 2
    assert "made with a store object" in ships.log(worker)


def test_the_environment_does_not_override_the_store_of_an_app(ships: Fleet, tmp_path: Path):
    (ships.folder / "own.py").write_text(
        f"from hawser import Hawser\napp = Hawser('sqlite:///{ships.folder}/own.db')\n@app.task\nasync def t() -> None: ...\n"
    )
    ships.start(app=f"{ships.folder}/own.py")
    own = Hawser(f"sqlite:///{ships.folder}/own.db")
    eventually(lambda: own._connection.portal.call(own._connection.store.workers()), 10)
    own.close()


def test_only_the_task_that_killed_a_process_is_run_apart(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap, poison

    innocent = app.enqueue_many([nap.job(1.5) for _ in range(20)])
    worker = ships.start("--slots", "30")
    eventually(lambda: len(ships.starts()) == 20)
    first = poison.enqueue("kill")
    eventually(lambda: app.get(first.id).attempt >= 2, 20)
    second = poison.enqueue("os._exit")
    eventually(lambda: settled(app), 40, lambda: ships.log(worker))
    for handle in innocent:
        job = app.get(handle.id)
        assert (job.state, job.attempt, job.crashes) == (State.DONE, 2, 0)
        assert str(job.errors[0]).endswith("while running; another job is to blame")
    assert [app.get(handle.id).state for handle in (first, second)] == [State.DEAD, State.DEAD]
    assert [app.get(handle.id).attempt for handle in (first, second)] == [3, 3]
    # The second one met a worker that already runs this task apart.
    assert all("the job's process" in str(error) for error in app.get(second.id).errors)
    assert ships.log(worker).count("starting another") == 1


def test_a_crowd_of_poison_in_threads_does_not_hold_up_the_healthy(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap, thread_nap, thread_poison

    bad = app.enqueue_many([thread_poison.job() for _ in range(100)])
    good = app.enqueue_many([task.job(0.01) for task in (nap, thread_nap) for _ in range(100)])
    worker = ships.start("--slots", "16")
    eventually(lambda: app.stats().done == len(good), 30, lambda: ships.log(worker))
    # The first process dies, and perhaps another while it is found out who it was.
    assert ships.log(worker).count("starting another") <= 3
    eventually(lambda: "task thread_poison has crashed a process; its jobs run apart" in ships.log(worker))
    assert "task thread_nap has crashed" not in ships.log(worker)
    eventually(lambda: app.stats().dead, 40)
    starts = Counter(start.id for start in ships.starts())
    assert max(starts[handle.id] for handle in bad) <= 3


def test_a_plain_function_that_holds_the_gil_past_its_timeout_costs_its_process(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap, thread_holds_the_gil

    guilty = thread_holds_the_gil.enqueue()
    worker = ships.start("--slots", "5")
    eventually(lambda: ships.starts(guilty.id))
    later = nap.enqueue(0.1)
    eventually(lambda: settled(app), 30, lambda: ships.log(worker))
    assert str(app.get(guilty.id).errors[0]).startswith("timeout: the handler blocked its worker process")
    assert app.get(later.id).state is State.DONE


def test_an_app_that_forks_at_import_keeps_its_leases(ships: Fleet, app: Hawser):
    (ships.folder / "forks.py").write_text(
        "import os, time\nfrom tests.worker.tasks import app\n"
        "if os.environ.get('HAWSER_FORKED') is None:\n"
        "    os.environ['HAWSER_FORKED'] = '1'\n"
        "    if os.fork() == 0:\n        time.sleep(30)\n        os._exit(0)\n"
    )
    from tests.worker.tasks import nap

    handle = nap.enqueue(4.0)
    ships.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    ships.start("--lease", "1.5", app=f"{ships.folder}/forks.py:app")
    eventually(lambda: app.get(handle.id).state.finished, 20)
    assert app.get(handle.id).attempt == 1


def test_workers_live_on_without_haste_while_the_store_is_away_and_lose_nothing(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap

    ships.url = ships.environ["HAWSER_STORE"] = f"sqlite:///{ships.folder}/jobs.db?timeout=1"
    app.use_store(ships.url)
    worker = ships.start("--lease", "2", "--slots", "20")
    # Some end while the store is away, some after it, some had not begun.
    handles = app.enqueue_many([nap.job(seconds) for seconds in (0.5, 1.0, 5.0) for _ in range(10)])
    eventually(lambda: len(ships.starts()) >= 20)
    before = group_of(worker.pid)
    with held(ships.folder / "jobs.db"):
        began, spent = time.monotonic(), cpu_of(before)
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            nap.enqueue(0.1)
        assert time.monotonic() - began < 10
        time.sleep(4 - min(4, time.monotonic() - began))  # what is measured: what it costs while the store is away
        assert (cpu_of(before) - spent) / (time.monotonic() - began) < 0.2
    eventually(lambda: settled(app), 40, lambda: ships.log(worker))
    assert {app.get(handle.id).state for handle in handles} == {State.DONE}
    assert len(app.find(limit=1000).jobs) == len(handles)
    assert set(before) <= set(group_of(worker.pid)), "a process has ended"
    assert "the store is away" in ships.log(worker)
    assert "the store is back" in ships.log(worker)


def test_a_worker_says_which_queues_of_its_app_it_does_not_serve_and_what_it_handed_back(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap

    app.enqueue_many([nap.job(60) for _ in range(3)])
    worker = ships.start("--queues", "default", "--drain-timeout", "0", "--processes", "2", app="tests.worker.spread:app")
    eventually(lambda: len(ships.starts()) == 3)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    log = ships.log(worker)
    assert log.count("queue images is not served here, but resize, crop use it;") == 1
    handed_back = [int(count) for count in re.findall(r"drained; (\d+) jobs were handed back", log)]
    assert sum(handed_back) >= 3, log


def test_what_a_process_hands_back_at_the_end_is_not_begun_by_a_sibling_that_ends_too(ships: Fleet, app: Hawser):
    from tests.worker.tasks import nap

    handles = app.enqueue_many([nap.job(60) for _ in range(3)])
    worker = ships.start("--drain-timeout", "0", "--processes", "6")
    eventually(lambda: len(ships.starts()) == 3)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert len(ships.starts()) == 3, ships.log(worker)
    assert {(job.state, job.attempt) for job in map(app.get, (handle.id for handle in handles))} == {(State.READY, 0)}


def test_a_policy_is_heard_of_by_workers_that_run_and_by_their_isolates(ships: Fleet, app: Hawser):
    from tests.worker.tasks import isolated_fails

    ships.start()
    app.set_policy("default", max_attempts=2, backoff=Fixed(every=7200, jitter="none"))

    def heard() -> bool:
        """Whether a job that fails now waits as the policy says; the first ones may fail before it is heard of."""
        handle = isolated_fails.enqueue()
        eventually(lambda: app.get(handle.id).errors, 20)
        job = app.get(handle.id)
        ended_at = job.attempts[0].ended_at
        assert ended_at is not None
        assert job.max_attempts == 2
        return round((job.run_at - ended_at).total_seconds()) == 7200

    eventually(heard, 10)
