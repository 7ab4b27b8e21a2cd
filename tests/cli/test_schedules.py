"""`hawser schedules` and `hawser scheduler`."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import Result

from hawser import Cron, Every, Hawser
from hawser.schedule.declaration import declaration, reconcile
from tests.cli.given import HOSTILE


@pytest.fixture
def app(given):
    with Hawser(given.url) as app:

        @app.task(queue="reports", priority=3, schedule={"declared": Every(hours=1)})
        def report(day: str = "today") -> None: ...

        app.schedules.create("nightly", "report", Cron("30 2 * * *", tz="Europe/Berlin", payload={"day": HOSTILE}))
        yield app


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_schedules_are_listed(run, app):
    app.schedules.create("often", "report", Every(minutes=5))
    app.schedules.pause("often")
    lines = run("schedules").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["SCHEDULE", "nightly", "often"]
    assert "At 02:30 every day (Europe/Berlin)" in lines[1]
    assert "paused" in lines[2]
    first, second = document(run("schedules", "ls", "--json"))["schedules"]
    assert (first["name"], first["task"], first["queue"], first["priority"]) == ("nightly", "report", "reports", 3)
    assert (first["state"], first["declared"], first["fired"], first["words"]) == (
        "active",
        False,
        0,
        "At 02:30 every day (Europe/Berlin)",
    )
    assert first["rule"]["expression"] == "30 2 * * *"
    assert first["payload"] == {"day": HOSTILE}
    assert datetime.fromisoformat(first["next_tick"]) > datetime.now(UTC)
    assert (second["state"], second["next_tick"], second["pause"]["by"]) == ("paused", None, "app")


def test_no_schedules_are_said_to_be_none(run, given):
    result = run("schedules")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no schedules; declare one" in result.stderr
    assert document(run("schedules", "--json")) == {"schedules": []}


def test_schedules_that_only_the_app_knows_are_named_with_what_brings_them_to_the_store(run, given, tmp_path):
    (tmp_path / "clock.py").write_text(
        "from hawser import Every, Hawser\n"
        f"app = Hawser({given.url!r})\n"
        "@app.task(schedule={'a': Every(minutes=5), 'b': Every(hours=1)})\n"
        "def tick() -> None: ...\n"
    )
    result = run("schedules", "--app", "clock.py")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "declared in the app, and not yet in the store: a, b; start a worker, or: hawser scheduler APP\n"


def test_a_schedule_is_shown_with_its_next_ticks(run, app):
    result = run("schedules", "show", "nightly")
    assert result.exit_code == 0
    assert "0 fired, 0 missed, 0 skipped" in result.stdout
    assert result.stdout.count("02:30:00 CE") == 5
    assert "\x1b" not in result.stdout
    assert len(document(run("schedules", "show", "nightly", "--json"))["ticks"]) == 5


def test_a_schedule_is_run_and_its_job_found(run, app, given):
    id = document(run("schedules", "run", "nightly", "--json"))["job_id"]
    [job] = document(run("jobs", "--schedule", "nightly", "--json"))["jobs"]
    assert (job["id"], job["schedule"], job["tick"]) == (id, "nightly", None)
    assert "nightly, run by hand" in run("jobs", "show", id).stdout
    assert given.audit()[0].action == "run_schedule"


def test_a_schedule_is_paused_resumed_skipped_and_removed(run, app, given):
    assert "schedule nightly is paused" in run("schedules", "pause", "nightly", "--reason", "moving").stdout
    assert "moving" in run("schedules", "show", "nightly").stdout
    assert document(run("schedules", "resume", "nightly", "--json"))["state"] == "active"
    assert document(run("schedules", "skip", "nightly", "--json"))["skipped"] == 1
    assert "schedule nightly is removed" in run("schedules", "rm", "nightly").stdout
    result = run("schedules", "rm", "nightly")
    assert result.exit_code == 1
    assert "no schedule is called 'nightly'" in result.stderr
    assert [record.action for record in given.audit()][:4] == [
        "delete_schedule",
        "skip_tick",
        "resume_schedule",
        "pause_schedule",
    ]


def test_what_code_declares_is_not_removed_here(run, app, given):
    definitions = app.declared()
    living = [declaration(definitions)]
    given._portal.call(given.store.fire(reconcile(definitions, living, [], time.time_ns() // 1000)))
    result = run("schedules", "rm", "declared")
    assert result.exit_code == 1
    assert "is declared in code, on task 'report'; remove it there, or pause it here" in result.stderr


def test_an_expression_is_tried_out_without_a_store(bare):
    result = bare("schedules", "preview", "30 2 * * *", "--tz", "Europe/Berlin", "--count", "3")
    assert result.exit_code == 0, result.output
    assert "At 02:30 every day (Europe/Berlin)" in result.stdout
    assert result.stdout.count("02:30:00 CE") == 3
    assert len(document(bare("schedules", "preview", "@hourly", "--json"))["ticks"]) == 5
    for never in ("0 0 30 2 *", "0 0 31 4,6 *", "0 0 0 30 FEB *"):
        refused = bare("schedules", "preview", never)
        assert (refused.exit_code, "names no day that ever comes; check day and month" in refused.stderr) == (2, True)
    wrong = bare("schedules", "preview", "61 * * * *")
    assert wrong.exit_code == 2
    assert "bad minute" in wrong.stderr


def test_the_ticks_of_a_schedule_are_shown(run, app):
    assert len(document(run("schedules", "preview", "nightly", "--count", "7", "--json"))["ticks"]) == 7
    assert document(run("schedules", "past", "nightly", "--json")) == {"schedule": "nightly", "ticks": []}
    assert "no tick has come yet" in run("schedules", "past", "nightly").stderr


def test_a_scheduler_alone_fires_what_an_app_declares(given, tmp_path):
    (tmp_path / "ticking.py").write_text(
        f"from hawser import Every, Hawser\napp = Hawser({given.url!r})\n\n"
        "@app.task(schedule=Every(seconds=1))\ndef tick() -> None: ...\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "hawser.cli", "scheduler", "ticking:app"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    try:
        with Hawser(given.url) as app:
            deadline = time.monotonic() + 30
            while len(app.find(schedule="tick").jobs) < 2:
                assert time.monotonic() < deadline
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.05)
            made = [job.tick for job in app.find(schedule="tick").jobs]
            assert len(made) == len(set(made))
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "schedule tick: declared" in said
