"""`hawser migrate`."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hawser.stores.sqlite.migrate import migrations
from tests.cli.conftest import Run
from tests.cli.given import Given
from tests.postgres import new_schema, server, versions, with_schema

NEWEST = migrations()[-1][0]


def test_a_store_is_made_where_there_is_none(bare: Run, tmp_path: Path):
    assert bare("migrate", "--store", "sqlite:///new.db").stdout == f"the schema was made: version {NEWEST}\n"
    assert (tmp_path / "new.db").exists()
    assert bare("migrate", "--store", "sqlite:///new.db").stdout == f"the schema is current: version {NEWEST}\n"


def test_a_check_says_whether_the_schema_is_current(run: Run):
    result = run("migrate", "--check", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) | {"store": ""} == {"store": "", "version": NEWEST, "newest": NEWEST, "current": True}


def test_a_check_changes_nothing(bare: Run, tmp_path: Path):
    result = bare("migrate", "--check", "--store", "sqlite:///new.db")
    assert result.exit_code == 1
    assert "is not there yet" in result.stdout
    assert "hawser migrate --store sqlite:///new.db" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_somebody_else_has_no_schema_of_ours(bare: Run, tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as con:
        con.execute("create table theirs (x)")
    assert bare("migrate", "--check", "--store", "sqlite:///theirs.db").exit_code == 1


def test_an_older_schema_is_not_current(given: Given, run: Run):
    with closing(sqlite3.connect(given.path)) as con, con:
        con.execute("update hawser_meta set value = '0' where name = 'schema'")
    assert run("migrate", "--check").exit_code == 1


def test_the_statements_make_the_schema_that_opening_makes(given: Given, bare: Run, tmp_path: Path):
    result = bare("migrate", "--store", "sqlite:///new.db", "--sql")
    assert result.exit_code == 0
    assert not (tmp_path / "new.db").exists()
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as con:
        con.executescript(result.stdout)
        made = con.execute("select type, name, sql from sqlite_master order by name").fetchall()
    with closing(sqlite3.connect(given.path)) as con:
        opened = con.execute("select type, name, sql from sqlite_master order by name").fetchall()
    assert [(kind, name, _words(sql)) for kind, name, sql in made] == [(kind, name, _words(sql)) for kind, name, sql in opened]
    assert bare("migrate", "--store", "sqlite:///new.db", "--check").exit_code == 0


def _words(sql: str | None) -> list[str]:
    return (sql or "").split()


def test_a_current_schema_needs_no_statements(run: Run):
    assert run("migrate", "--sql").stdout == f"-- The schema is current: version {NEWEST}.\n"


@pytest.mark.parametrize("option", [(), ("--check",), ("--sql",)])
def test_a_newer_schema_is_refused(given: Given, run: Run, option: tuple[str, ...]):
    with closing(sqlite3.connect(given.path)) as con, con:
        con.execute("update hawser_meta set value = '99' where name = 'schema'")
    result = run("migrate", *option)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"error: the schema has version 99, this Hawser knows {NEWEST}; upgrade Hawser" in result.stderr


@pytest.mark.parametrize(
    ("url", "said", "code"),
    [
        ("memory://", "has no schema to migrate", 2),
        ("jobs.db", "is not a URL", 2),
        ("oracle://x", "no store is called 'oracle'", 2),
        ("sqlite:///no/such/folder.db", "the folder of", 1),
    ],
)
def test_a_wrong_store_is_an_error(bare: Run, url: str, said: str, code: int):
    result = bare("migrate", "--store", url)
    assert result.exit_code == code
    assert said in result.stderr


def test_a_file_that_is_no_database_is_an_error(bare: Run, tmp_path: Path):
    (tmp_path / "text.db").write_text("x" * 5000)
    result = bare("migrate", "--store", "sqlite:///text.db", "--check")
    assert result.exit_code == 1
    assert "is not a database" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]


@pytest.mark.parametrize("option", [("--check",), ("--check", "--json"), ("--json",)])
def test_a_password_is_not_printed(bare: Run, option: tuple[str, ...]):
    url = with_schema(server(versions()[0]), new_schema())
    result = bare("migrate", "--store", f"{url}&password=s3cret", *option)
    assert result.exit_code == ("--check" in option)
    assert "&password=***" in result.stdout
    assert "s3cret" not in result.output


def test_no_store_named_is_an_error(bare: Run, tmp_path: Path):
    result = bare("migrate")
    assert result.exit_code == 2
    assert "use --store URL" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_the_environment_names_is_made(bare: Run, tmp_path: Path):
    assert bare("migrate", env={"HAWSER_STORE": "sqlite:///new.db"}).exit_code == 0
    assert (tmp_path / "new.db").exists()


def test_statements_go_alone(run: Run):
    assert run("migrate", "--sql", "--check").exit_code == 2
    assert run("migrate", "--sql", "--json").exit_code == 2
