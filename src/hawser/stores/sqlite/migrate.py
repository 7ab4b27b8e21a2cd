"""The schema's versions: numbered files, applied forward, each once."""

from __future__ import annotations

import sqlite3
from importlib.resources import files

from hawser.errors import SchemaTooNew

CREATE_META = "create table if not exists hawser_meta (name text primary key, value text not null) without rowid"
_READ = "select value from hawser_meta where name = 'schema'"
_WRITE = "insert or replace into hawser_meta (name, value) values ('schema', ?)"


def migrations() -> list[tuple[int, str]]:
    """Version and SQL of every migration, oldest first."""
    folder = files("hawser.stores.sqlite") / "migrations"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name.split("_")[0]), entry.read_text(encoding="utf-8")) for entry in found)


def version_of(con: sqlite3.Connection) -> int:
    """The schema's version in this file; 0 when it has none of our tables."""
    if con.execute("select 1 from sqlite_master where name = 'hawser_meta'").fetchone() is None:
        return 0
    found = con.execute(_READ).fetchone()
    return int(found[0]) if found else 0


def is_current(con: sqlite3.Connection) -> bool:
    """Whether there is nothing to migrate; refuses a newer schema."""
    version, newest = version_of(con), migrations()[-1][0]
    if version > newest:
        raise SchemaTooNew(
            f"the schema has version {version}, this Hawser knows {newest}; upgrade Hawser (an older one may not write here)"
        )
    return version == newest


def migrate(con: sqlite3.Connection) -> None:
    """Bring the file to this version's schema; refuse one that a newer version has changed. Runs inside a transaction."""
    if is_current(con):
        return
    con.execute(CREATE_META)
    version = version_of(con)
    for number, script in migrations():
        if number > version:
            for statement in script.split(";\n"):
                if statement.strip():
                    con.execute(statement)
            con.execute(_WRITE, (str(number),))
