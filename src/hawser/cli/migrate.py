"""`hawser migrate`: a store's schema, looked at or brought up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import msgspec

from hawser.app import Hawser
from hawser.cli import options, show
from hawser.cli.target import file_of, must_exist, opened
from hawser.errors import ConfigError
from hawser.stores import make_store
from hawser.stores.sqlite.connection import explain
from hawser.stores.sqlite.migrate import CREATE_META, migrations, version_of


class Schema(msgspec.Struct, frozen=True):
    """What stands in a store, and what this version of Hawser wants."""

    store: str
    version: int
    """0 when nothing is there yet."""
    newest: int

    @property
    def current(self) -> bool:
        return self.version == self.newest


@click.command()
@click.option("--store", "url", metavar="URL", help="The store, for example sqlite:///jobs.db.  [default: $HAWSER_STORE]")
@click.option("--check", is_flag=True, help="Change nothing; exit with 0 when the schema is current and 1 when it is not.")
@click.option("--sql", is_flag=True, help="Change nothing; print the statements that would be run.")
@options.as_json
def migrate(*, url: str | None, check: bool, sql: bool, as_json: bool) -> None:
    """Bring a store's schema to this version.

    A SQLite store also does so by itself when it is opened. A store whose schema is newer is refused.
    """
    if sql and (check or as_json):
        raise click.UsageError("--sql prints statements only; leave out the other options")
    found = _schema(url)
    if found.version > found.newest:
        # Opening it refuses, and says why.
        with opened(found.store):
            pass
    if sql:
        for statement in _statements(found.version):
            click.echo(statement)
        return
    if not check:
        with opened(found.store, create=True):
            pass
    _print(found, check=check, as_json=as_json)
    if check and not found.current:
        raise click.exceptions.Exit(1)


def _schema(url: str | None) -> Schema:
    if url is None:
        must_exist(None, url := Hawser().config.store)
    # What is wrong with the URL shows before anything is touched.
    make_store(url)
    path = file_of(url)
    if path is None:
        raise ConfigError(f"store: {url!r} has no schema to migrate; only sqlite:// has one in this version")
    return Schema(url, _version(path), migrations()[-1][0])


def _version(path: Path) -> int:
    """The version in the file; 0 when there is no file or none of our tables. Nothing is written."""
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as con:
            return version_of(con)
    except sqlite3.Error as error:
        raise explain(error, path) from error


def _statements(version: int) -> Iterator[str]:
    """What would be run, in one transaction; a test runs it and compares the schemas."""
    wanted = [(number, script) for number, script in migrations() if number > version]
    if not wanted:
        yield f"-- The schema is current: version {version}."
        return
    yield "begin immediate;"
    yield f"{CREATE_META};"
    for number, script in wanted:
        yield f"\n-- Version {number}."
        yield script.rstrip()
        yield f"insert or replace into hawser_meta (name, value) values ('schema', '{number}');"  # noqa: S608  # a number of ours
    yield "commit;"


def _print(found: Schema, *, check: bool, as_json: bool) -> None:
    if as_json:
        version = found.version if check else found.newest
        show.document({"store": found.store, "version": version, "newest": found.newest, "current": version == found.newest})
    elif found.current:
        show.say(f"the schema is current: version {found.version}")
    elif check:
        there = f"has version {found.version}" if found.version else "is not there yet"
        show.say(
            f"the schema {there}, this Hawser wants version {found.newest}; "
            f"bring it up to date with: hawser migrate --store {found.store}"
        )
    else:
        show.say(
            f"the schema went from version {found.version} to {found.newest}"
            if found.version
            else f"the schema was made: version {found.newest}"
        )
