"""`hawser doctor` and `hawser completion`."""

import json
import sqlite3

import pytest

from hawser.cli import doctor
from hawser.store import Beat
from tests.cli.conftest import Run
from tests.cli.given import Given


def findings(run: Run, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = run("doctor", "--json", *words)
    said = json.loads(result.stdout)
    assert said["ok"] == (result.exit_code == 0)
    return result.exit_code, {finding["check"]: finding for finding in said["findings"]}


def test_a_good_store_has_nothing_wrong(given: Given, run: Run):
    code, found = findings(run)
    assert code == 0
    assert {name: finding["verdict"] for name, finding in found.items()} == {
        "versions": "ok",
        "schema": "ok",
        "store": "ok",
        "durability": "ok",
        "clocks": "ok",
        "workers": "warning",
    }
    assert "hawser worker APP" in found["workers"]["do"]


def test_a_store_that_is_not_there_is_wrong_and_is_not_made(bare: Run, tmp_path):
    code, found = findings(bare, "--store", f"sqlite:///{tmp_path}/none.db")
    assert (code, found["store"]["verdict"]) == (1, "wrong")
    assert "hawser migrate" in found["store"]["do"]
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_no_store_is_wrong(bare: Run, tmp_path):
    (tmp_path / "letter.db").write_text("Dear Ann, this is a letter and no database. " * 40)
    code, found = findings(bare, "--store", f"sqlite:///{tmp_path}/letter.db")
    assert (code, found["store"]["verdict"]) == (1, "wrong")


def test_a_newer_schema_is_wrong(given: Given, bare: Run):
    given.close()
    with sqlite3.connect(given.path) as con:
        con.execute("update hawser_meta set value = '9999' where name = 'schema'")
    con.close()
    result = bare("doctor", "--json", "--store", given.url)
    assert result.exit_code == 1
    assert "9999" in result.stdout


def test_jobs_that_no_worker_serves_are_found(given: Given, run: Run):
    given.ready(queue="mail")
    given.dead(queue="bulk")
    beat = Beat(worker="w1", host="here", pid=1, version="0", queues=("default",), slots=1, running=0)
    given._portal.call(given.store.beat([beat]))
    code, found = findings(run)
    assert code == 1
    assert "queue mail" in found["queues"]["told"]
    assert found["dead"]["verdict"] == "warning"


def test_clocks_that_differ_are_told(run: Run, monkeypatch: pytest.MonkeyPatch):
    from datetime import timedelta

    from hawser.cli.format import now

    monkeypatch.setattr(doctor, "now", lambda: now() - timedelta(minutes=5))
    code, found = findings(run)
    assert (code, found["clocks"]["verdict"]) == (0, "warning")
    assert "5 min" in found["clocks"]["told"]


def test_it_reads_for_people_too(run: Run, shop: str):
    result = run("doctor", "--app", shop)
    assert result.exit_code == 0, result.output
    assert "ok       app          2 tasks" in result.stdout
    assert "→ start one" in result.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(bare: Run, shell: str):
    result = bare("completion", shell)
    assert result.exit_code == 0, result.output
    assert "_HAWSER_COMPLETE" in result.stdout
