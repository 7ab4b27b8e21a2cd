"""Each experiment in its quick form, as a user runs it, on a real store; and what is written down of it."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys

import pytest

from hawser.lab.experiment import EXPERIMENTS, left_out
from tests.lab.all_shown import missing
from tests.repetition import times

KILLS = times(3, 12)


def lab(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    run = subprocess.run(
        [sys.executable, "-m", "hawser.cli", "lab", *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == code, run.stdout + run.stderr
    return run


@pytest.mark.parametrize(
    ("store", "label"), [("sqlite", "sqlite"), ("postgres", "postgres"), ("redis?lanes=streams", "redis-streams")]
)
def test_nothing_is_lost_when_workers_are_killed(store, label, tmp_path):
    found = json.loads(
        lab(
            "loss", "--store", store, "--quick", "--set", f"kills={KILLS}", "--set", "rate=30", "--out", str(tmp_path), "--json"
        ).stdout
    )
    assert found["verdict"] == "held"
    assert found["figures"]["lost"] == found["figures"]["stale_accepted"] == found["figures"]["settled_twice"] == 0
    assert sum(found["figures"]["faults_made"].values()) == KILLS
    assert found["figures"]["redelivered"] > 0
    kept = json.loads((tmp_path / f"loss-{label}" / "result.json").read_text())
    assert kept == found
    assert {"hawser", "python", store.partition("?")[0]} == kept["versions"].keys()
    assert kept["seed"] == 1
    assert shlex.split(kept["command"])[4] == store
    assert (tmp_path / f"loss-{label}" / "plot.svg").read_text().startswith("<svg")


def test_an_experiment_that_does_not_hold_says_so_and_ends_with_one(tmp_path):
    """Too small a backlog proves nothing about lateness behind one."""
    said = lab("lateness", "--quick", "--set", "jobs=10", "--set", "seconds=1", "--out", str(tmp_path), code=1)
    assert "lateness on sqlite: broken" in said.stdout
    assert "the backlog was drained too early" in said.stdout


def test_a_report_shows_every_result(tmp_path):
    lab("batch", "--quick", "--set", "jobs=200", "--out", str(tmp_path))
    page = lab("report", str(tmp_path)).stdout.strip()
    text = (tmp_path / "report.html").read_text()
    assert page == str(tmp_path / "report.html")
    assert "batch on sqlite" in text
    assert "<svg" in text
    assert not any(line.startswith("batch") for line in missing(tmp_path, "sqlite"))
    assert "hawser lab batch --store sqlite --seed 1 --quick" in text


def test_it_is_noticed_when_a_report_lacks_an_experiment_or_its_picture(tmp_path):
    """`.ci/run` asks this of the report of all."""
    wanted = [name for name in EXPERIMENTS if left_out(name, "sqlite") is None]
    assert len(wanted) > 15

    def report(sections: dict[str, str]) -> list[str]:
        shown = (f'<section id="{name}"><h2>{name} on sqlite</h2>{inside}</section>' for name, inside in sections.items())
        (tmp_path / "report.html").write_text("\n".join(shown))
        return missing(tmp_path, "sqlite")

    whole = dict.fromkeys(wanted, "<p>held</p>\n<svg></svg>")
    assert report(whole) == []
    assert report({name: inside for name, inside in whole.items() if name != "loss"}) == ["loss: no section"]
    assert report(whole | {"batch": "<p>held</p>"}) == ["batch: no picture"]


def test_a_report_of_nothing_is_a_clear_error(tmp_path):
    assert "run an experiment first" in lab("report", str(tmp_path), code=2).stderr


def test_the_load_can_be_looked_at():
    lines = lab("gen", "--seed", "3", "--count", "5").stdout.splitlines()
    assert [json.loads(line)["payload"]["seq"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines == lab("gen", "--seed", "3", "--count", "5").stdout.splitlines()


def test_a_store_that_cannot_be_experimented_on_is_refused_by_name(tmp_path):
    assert "memory" in lab("loss", "--store", "memory://", "--out", str(tmp_path), code=2).stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "why"), [("snapshot", "only PostgreSQL has snapshots"), ("transfers", "own database")])
def test_an_experiment_that_a_store_cannot_take_says_why_and_starts_nothing(name, why, tmp_path):
    assert why in lab(name, "--store", "redis", "--out", str(tmp_path), code=2).stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_claims_at_a_rate_are_timed_on_every_store_when_no_snapshot_is_held(store, tmp_path):
    words = ("--quick", "--set", "seconds=0", "--set", "rate=100", "--set", "free=2", "--store", store)
    done = subprocess.run(
        [sys.executable, "-m", "hawser.cli", "lab", "snapshot", *words, "--out", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = json.loads(done.stdout)  # whether it held is a matter of the machine
    assert found["figures"]["held"] is None
    assert "claim_p99_ms" in found["figures"]["free"]
    assert found["figures"]["enqueue_p99_ms"] > 0


def test_a_server_of_our_own_takes_no_setting_but_lanes(tmp_path):
    assert "no setting but lanes" in lab("loss", "--store", "redis?replicas=1", "--out", str(tmp_path), code=2).stderr
    assert "lists or streams" in lab("loss", "--store", "redis?lanes=sets", "--out", str(tmp_path), code=2).stderr


def test_a_folder_that_may_not_be_written_is_told_before_the_experiment(tmp_path):
    (tmp_path / "file").touch()
    said = lab("loss", "--quick", "--out", str(tmp_path / "file" / "below"), code=2)
    assert f"error: --out: '{tmp_path}/file/below/loss-sqlite' may not be written: Not a directory; name another" in said.stderr
    assert said.stderr.count("\n") == 1


def test_ctrl_c_is_answered_at_once_and_ends_with_130(tmp_path):
    words = [sys.executable, "-m", "hawser.cli", "lab", "steady", "--set", "seconds=60", "--out", str(tmp_path)]
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    assert run.stderr.readline()
    run.send_signal(signal.SIGINT)
    assert run.stderr.readline() == "stopping: what was started is ended first\n"
    assert (run.wait(60), run.stderr.read()) == (130, "")
    run.stderr.close()
    assert not list(tmp_path.iterdir())


def test_a_setting_that_is_no_number_is_refused(tmp_path):
    assert "NAME=NUMBER" in lab("loss", "--set", "kills", "--out", str(tmp_path), code=2).stderr


def test_a_setting_that_the_experiment_does_not_have_is_refused_and_nothing_is_written(tmp_path):
    said = lab("loss", "--set", "kils=3", "--out", str(tmp_path), code=2).stderr
    assert "loss has no such number; it has kills, units, rate" in said
    assert not list(tmp_path.iterdir())


def test_the_lab_works_where_the_driver_of_postgresql_is_not_installed(tmp_path):
    without = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from hawser.cli import main\n"
        "from hawser.lab.experiment import EXPERIMENTS, numbers_of\n"
        "assert all(numbers_of(name) for name in EXPERIMENTS)\n"
        f"sys.argv = ['hawser', 'lab', 'batch', '--quick', '--set', 'jobs=200', '--out', {str(tmp_path)!r}]\n"
        "main()"
    )
    run = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, timeout=120, check=False)
    assert "batch on sqlite: held" in run.stdout, run.stdout + run.stderr


def test_every_experiment_is_listed_with_what_it_asks():
    said = " ".join(lab("--help").stdout.split())
    for name, told in EXPERIMENTS.items():
        assert name in said
        assert " ".join(told.split()[:4]) in said
