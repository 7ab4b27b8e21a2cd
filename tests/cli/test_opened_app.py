"""Finding the app and the store."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Run
from tests.cli.given import Given
from tests.postgres import new_schema, server, versions, with_schema


@pytest.fixture(autouse=True)
def _forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules that a test imports are not there for the next."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.mark.parametrize("spec", ["shop:app", "shop", "shop.py:app", "./shop.py", "shop.py"])
def test_an_app_is_found_by_module_or_file(given: Given, bare: Run, shop: str, spec: str):
    given.ready()
    result = bare("stats", "--app", spec)
    assert result.exit_code == 0, result.stderr
    assert "ready      1" in result.stdout


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nope:app", "no module 'nope'"),
        ("shop.nope:app", "no module 'shop.nope'"),
        ("nope.py:app", "no file 'nope.py'"),
        ("shop:nope", "'nope'; it has app"),
        ("shop:other", "no Hawser called 'other'; it has app"),
        ("empty", "make one with app = Hawser(…)"),
        ("two", "name one, as in two:a"),
        ("needs", "imports the module 'not_installed_here', which is not installed"),
        ("raises:app", "importing 'raises:app' failed: ZeroDivisionError: division by zero, at "),
        ("exits:app", "importing 'exits:app' failed: SystemExit: 3"),
        ("broken.py:app", "SyntaxError"),
        ("badtask:app", "*args has no names"),
        (":app", "importing ':app' failed"),
        ("", "importing '' failed"),
    ],
)
def test_an_app_that_is_not_found_says_why(bare: Run, shop: str, tmp_path: Path, spec: str, said: str):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "two.py").write_text("from hawser import Hawser\na = Hawser()\nb = Hawser()\n")
    (tmp_path / "needs.py").write_text("import not_installed_here\n")
    (tmp_path / "raises.py").write_text("\nx = 1 / 0\n")
    (tmp_path / "exits.py").write_text("import sys; sys.exit(3)\n")
    (tmp_path / "broken.py").write_text("x = (\n")
    (tmp_path / "badtask.py").write_text("from hawser import Hawser\napp = Hawser()\n@app.task\ndef f(*args): ...\n")
    result = bare("stats", "--app", spec)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_an_error_of_the_app_names_its_line(bare: Run, tmp_path: Path):
    (tmp_path / "raises.py").write_text("\nx = 1 / 0\n")
    assert f"at {tmp_path / 'raises.py'}:2;" in bare("stats", "--app", "raises").stderr


@pytest.mark.parametrize("where", ["before", "after"])
def test_debug_shows_the_traceback(bare: Run, tmp_path: Path, where: str):
    (tmp_path / "raises.py").write_text("x = 1 / 0\n")
    command = ("stats", "--app", "raises")
    result = bare("--debug", *command) if where == "before" else bare(*command, "--debug")
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_debug_may_stand_in_the_environment(bare: Run):
    assert "Traceback" in bare("stats", "--app", "nope", env={"HAWSER_DEBUG": "1"}).stderr


def test_a_store_that_is_named_wins_over_the_apps_own(given: Given, bare: Run, shop: str):
    given.ready()
    bare("migrate", "--store", "sqlite:///other.db")
    assert "ready      1" in bare("stats", "--app", shop, env={"HAWSER_STORE": "sqlite:///other.db"}).stdout
    assert "ready      0" in bare("stats", "--app", shop, "--store", "sqlite:///other.db").stdout


def test_the_default_file_is_used_when_it_is_there(bare: Run):
    bare("migrate", "--store", "sqlite:///hawser.db")
    assert bare("stats").exit_code == 0


@pytest.mark.parametrize("command", [("stats",), ("jobs",), ("dlq",), ("queues",), ("tasks",), ("queues", "pause", "q")])
def test_a_store_that_is_not_there_is_not_made(bare: Run, tmp_path: Path, command: tuple[str, ...]):
    for args, said in (
        ((), "none was named and there is no 'hawser.db' here; use --store URL"),
        (("--store", "sqlite:///typo.db"), "--store: there is no file 'typo.db'"),
        (("--store", "sqlite:///typo.db"), "make the store with: hawser migrate --store sqlite:///typo.db\n"),
    ):
        result = bare(*command, *args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr
    assert "HAWSER_STORE: there is no file" in bare(*command, env={"HAWSER_STORE": "sqlite:///typo.db"}).stderr
    assert list(tmp_path.iterdir()) == []


def test_nor_are_its_tables_in_a_file_of_somebody_else(bare: Run, tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as con:
        con.execute("create table theirs (x)")
    result = bare("jobs", "--store", "sqlite:///theirs.db")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--store: there is no store of Hawser in 'sqlite:///theirs.db'" in result.stderr
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as con:
        assert con.execute("select name from sqlite_master").fetchall() == [("theirs",)]


@pytest.mark.parametrize("command", [("stats",), ("jobs",), ("tasks",), ("queues", "pause", "q"), ("schedules",)])
def test_nor_is_a_schema_of_a_server(bare: Run, tmp_path: Path, command: tuple[str, ...]):
    plain, schema = server(versions()[0]), new_schema()
    url = with_schema(plain, schema)
    (tmp_path / "away.py").write_text(f"from hawser import Hawser\napp = Hawser({url!r})\n")
    for args, env, said in (
        (("--store", f"{url}&password=s3cret"), {}, "--store: there is no store of Hawser in 'postgresql://"),
        ((), {"HAWSER_STORE": url}, "HAWSER_STORE: there is no store of Hawser in"),
        (("--app", "away.py"), {}, "start a worker, or make the store with: hawser migrate --store 'postgresql://"),
    ):
        result = bare(*command, *args, env=env)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr
        assert "s3cret" not in result.stderr
    with psycopg.connect(plain) as con:
        assert con.execute("select 1 from pg_namespace where nspname = %s", (schema,)).fetchone() is None


def test_an_app_is_looked_at_without_making_its_store(bare: Run, tmp_path: Path):
    (tmp_path / "new.py").write_text('from hawser import Hawser\napp = Hawser("sqlite:///new.db")\n@app.task\ndef f(): ...\n')
    result = bare("jobs", "--app", "new.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--app: there is no file 'new.db', seen from" in result.stderr
    assert not (tmp_path / "new.db").exists()
    assert bare("enqueue", "new.py", "f").exit_code == 0
    assert bare("jobs", "--app", "new.py").exit_code == 0


@pytest.mark.parametrize(
    ("url", "said", "code"),
    [
        ("jobs.db", "store: 'jobs.db' is not a URL", 2),
        ("oracle://x", "no store is called 'oracle'", 2),
        ("sqlite://jobs.db", "with three", 2),
        ("memory://", "memory:// lives inside one process", 2),
        ("sqlite:///.", "is a folder", 1),
        ("sqlite:///\x1b[31m.db", "\\x1b[31m.db", 2),
    ],
)
def test_a_wrong_store_is_an_error_in_one_line(bare: Run, url: str, said: str, code: int):
    result = bare("stats", "--store", url)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_an_app_in_memory_cannot_be_reached(bare: Run, tmp_path: Path):
    (tmp_path / "mem.py").write_text('from hawser import Hawser\napp = Hawser("memory://")\n@app.task\ndef f(): ...\n')
    result = bare("enqueue", "mem", "f")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be reached from here" in result.stderr


def test_a_wrong_setting_in_the_environment_is_named(run: Run):
    result = run("stats", env={"HAWSER_MAX_PAYLOAD": "lots"})
    assert result.exit_code == 2
    assert "HAWSER_MAX_PAYLOAD" in result.stderr
