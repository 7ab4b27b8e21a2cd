"""The schema's versions: numbered files, applied forward, each once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from hawser.errors import SchemaTooNew
from hawser.stores.schema import Migration, Schema, migrations_in, too_new
from hawser.stores.sqlite.connection import explain

CREATE_META: Final = "create table if not exists hawser_meta (name text primary key, value text not null) without rowid"
_READ: Final = "select value from hawser_meta where name = 'schema'"
_WRITE: Final = "insert or replace into hawser_meta (name, value) values ('schema', ?)"


def migrations() -> list[Migration]:
    """Every migration, oldest first."""
    return migrations_in("hawser.stores.sqlite")


def version_of(con: sqlite3.Connection) -> int:
    """The schema's version in this file; 0 when it has none of our tables."""
    if con.execute("select 1 from sqlite_master where name = 'hawser_meta'").fetchone() is None:
        return 0
    found = con.execute(_READ).fetchone()
    return int(found[0]) if found else 0


def is_current(con: sqlite3.Connection) -> bool:
    """Whether there is nothing to migrate; refuses a newer schema."""
    version, newest = version_of(con), migrations()[-1].version
    if version > newest:
        raise SchemaTooNew(too_new(version, newest))
    return version == newest


def migrate(con: sqlite3.Connection) -> None:
    """Bring the file to this version's schema; refuse one that a newer version has changed. Runs inside a transaction."""
    if is_current(con):
        return
    con.execute(CREATE_META)
    version = version_of(con)
    for migration in migrations():
        if migration.version > version:
            for statement in migration.script.split(";\n"):
                if statement.strip():
                    con.execute(statement)
            con.execute(_WRITE, (str(migration.version),))


def schema_in(path: Path) -> Schema:
    """What stands in the file; version 0 when there is no file or none of our tables. Nothing is written."""
    version = 0
    if path.exists():
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as con:
                version = version_of(con)
        except sqlite3.Error as error:
            raise explain(error, path) from error
    return Schema(version, migrations()[-1].version, list(_statements(version)))


def _statements(version: int) -> Iterator[str]:
    """What would be run, in one transaction; a test runs it and compares the schemas."""
    wanted = [migration for migration in migrations() if migration.version > version]
    if not wanted:
        return
    yield "begin immediate;"
    yield f"{CREATE_META};"
    for migration in wanted:
        yield f"\n-- Version {migration.version}."
        yield migration.script.rstrip()
        yield f"insert or replace into hawser_meta (name, value) values ('schema', '{migration.version}');"  # noqa: S608  # a number of ours
    yield "commit;"
