"""`hawser doctor` and `hawser completion`."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from hawser.api.page import Dashboard
from hawser.cli import doctor
from hawser.store import Beat
from tests.cli.conftest import Run
from tests.cli.given import Given
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.redis_servers import running


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
        "size": "ok",
        "durability": "ok",
        "clocks": "ok",
        "workers": "warning",
    }
    assert "hawser worker APP" in found["workers"]["do"]
    assert found["size"]["told"].startswith("file 0.")


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


def test_a_worker_that_fell_silent_is_not_alive(given: Given, run: Run):
    beat = Beat(worker="w1", host="here", pid=1, version="0", queues=("default",), slots=1, running=0)
    given.ask(given.store.beat([beat]))
    assert findings(run)[1]["workers"]["told"] == "1 alive"
    con = sqlite3.connect(given.path)
    with con:
        con.execute("update hawser_worker set seen_at = seen_at - 60000000")
    con.close()
    code, found = findings(run)
    assert (code, found["workers"]["told"]) == (0, "0 alive")
    assert "hawser workers reclaim w1" in found["silent"]["do"]


def test_a_dashboard_that_was_not_built_is_told(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path):
    (tmp_path / "missing.txt").write_text("npm could not fetch its packages\n")
    monkeypatch.setattr(doctor, "Dashboard", lambda: Dashboard(tmp_path))
    code, found = findings(run)
    assert (code, found["dashboard"]["told"]) == (0, "npm could not fetch its packages")


def test_an_app_that_is_named_as_for_a_worker_is_told_how(run: Run):
    for words in (("doctor", "shop:app"), ("queues", "shop:app"), ("workers", "ls", "shop:app")):
        result = run(*words)
        assert result.exit_code == 2
        assert "--app shop:app" in result.stderr
    assert "--app" not in run("doctor", "verbose").stderr


def test_clocks_that_differ_are_told(run: Run, monkeypatch: pytest.MonkeyPatch):
    from datetime import timedelta

    from hawser.cli.format import now

    monkeypatch.setattr(doctor, "now", lambda: now() - timedelta(minutes=5))
    code, found = findings(run)
    assert (code, found["clocks"]["verdict"]) == (0, "warning")
    assert "5 min" in found["clocks"]["told"]


def test_a_redis_store_has_nothing_wrong(bare: Run):
    with running(appendonly="yes") as server:
        url = f"{server.url}?namespace=shop"
        assert bare("migrate", "--store", url).exit_code == 0
        code, found = findings(bare, "--store", url)
        assert code == 0, found
        assert (found["schema"]["told"], found["durability"]["verdict"]) == ("version 1", "ok")
        assert "redis" in found["versions"]["told"].partition("extras:")[2]
        with server.client() as client:
            client.config_set("appendfsync", "everysec")
        code, found = findings(bare, "--store", url)
        assert (code, found["store"]["verdict"]) == (1, "wrong")
        assert "appendfsync is not always" in found["store"]["told"] + found["store"]["do"]


def test_a_redis_store_that_is_not_there_is_wrong_and_is_not_made(bare: Run):
    with running() as server:
        code, found = findings(bare, "--store", f"{server.url}?namespace=mistyped")
        assert (code, found["store"]["verdict"]) == (1, "wrong")
        assert "hawser migrate" in found["store"]["do"]
        with server.client() as client:
            assert client.keys("*") == []


def test_a_file_on_a_network_file_system_is_wrong(
    given: Given, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
):
    mounts = tmp_path_factory.mktemp("proc") / "mounts"
    monkeypatch.setattr(doctor, "MOUNTS", mounts)
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nnas:/jobs {given.path.parent} nfs4 rw 0 0\n")
    code, found = findings(run)
    assert (code, found["file system"]["verdict"]) == (1, "wrong")
    assert "local disk" in found["file system"]["do"]
    mounts.write_text(f"nas:/all / nfs4 rw 0 0\n/dev/sda1 {given.path.parent} ext4 rw 0 0\n")
    assert "file system" not in findings(run)[1], "the nearest mount counts"


def test_a_file_that_may_not_be_written_is_wrong_and_says_who_tried(given: Given):
    """As a user without rights; the tests may be run by root, who has all of them."""
    other = 65_534 if os.getuid() == 0 else os.getuid()
    given.ready()
    given.close()
    with tempfile.TemporaryDirectory(prefix="hawser-doctor-") as name:
        folder = Path(name)
        shutil.copy(given.path, folder / "jobs.db")
        (folder / "jobs.db").chmod(0o444)
        folder.chmod(0o555)
        # The other user may not be able to read this Python: all of it is read before.
        script = f"""
import os
from click.testing import CliRunner
from hawser.cli.program import hawser
assert CliRunner().invoke(hawser, ["doctor", "--store", {given.url!r}]).exit_code == 0
os.setuid({other})
print(CliRunner().invoke(hawser, ["doctor", "--json", "--store", "sqlite:///{folder}/jobs.db"]).stdout)
"""
        try:
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        finally:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    wrong = [finding["told"] for finding in json.loads(done.stdout)["findings"] if finding["check"] == "permissions"]
    assert wrong == [
        f"the file {folder}/jobs.db cannot be written by user {other}",
        f"the folder {folder} cannot be written by user {other}",
    ]


@pytest.fixture
def postgres_url() -> str:
    url = with_schema(server(versions()[-1]), f"{own_schema()}_doctor")
    asyncio.run(emptied(url))
    return url


@pytest.fixture
def role(postgres_url: str) -> Iterator[Callable[[str], None]]:
    """A role without rights of its own; gives a way to run SQL as the administrator."""
    with psycopg.connect(postgres_url.partition("&schema")[0], autocommit=True) as con:

        def run(sql: str) -> None:
            con.execute(sql)

        run("create role hawser_clerk login")
        try:
            yield run
        finally:
            run("drop owned by hawser_clerk")
            run("drop role hawser_clerk")


def test_a_role_without_rights_is_told_each_of_them(bare: Run, postgres_url: str, role: Callable[[str], None]):
    schema = postgres_url.partition("schema=")[2].partition("&")[0]
    clerk = postgres_url.replace("postgres@", "hawser_clerk@", 1)
    code, found = findings(bare, "--store", postgres_url)
    assert (code, "permissions" in found) == (0, False), found

    def missing(url: str = clerk) -> list[str]:
        result = bare("doctor", "--json", "--store", url)
        assert result.exit_code == 1
        told = [finding["told"] for finding in json.loads(result.stdout)["findings"] if finding["check"] == "permissions"]
        return [each.removeprefix("the role of the URL may not ").partition(" the tables ")[0] for each in told]

    everything = [
        f"use the schema {schema}",
        f"make tables and functions in the schema {schema}",
        "read and write",
        "alter",
    ]
    assert missing() == everything
    role(f"grant usage, create on schema {schema} to hawser_clerk")
    assert missing() == everything[2:]
    role(f"grant select, insert, update, delete on all tables in schema {schema} to hawser_clerk")
    assert missing() == ["alter"]
    nowhere = clerk.replace(f"schema={schema}", "schema=elsewhere")
    assert missing(nowhere) == ["make the schema elsewhere in the database postgres"]


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


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("hawser wor", {"worker", "workers"}),
        ("hawser work", {"worker", "workers"}),
        ("hawser jobs wh", {"why"}),
        ("hawser jobs --sta", {"--state"}),
        ("hawser worker --bur", {"--burst"}),
        ("hawser completion ba", {"bash"}),
    ],
)
def test_a_word_that_was_begun_is_completed(bare: Run, typed: str, wanted: set[str]):
    """What bash asks the program for after `hawser wor` and the key."""
    words = typed.split()
    environ = {"_HAWSER_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    result = bare(env=environ)
    assert {line.partition(",")[2] for line in result.stdout.splitlines()} == wanted


def test_bash_itself_completes_with_the_script():
    script = """
    eval "$(hawser completion bash)"
    COMP_WORDS=(hawser wor) COMP_CWORD=1
    _hawser_completion hawser wor hawser
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "worker" in done.stdout.split()
