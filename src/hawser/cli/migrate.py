"""`hawser migrate`: a store's schema, looked at or brought up to date."""

from __future__ import annotations

import click

from hawser.app import Hawser
from hawser.cli import options, show
from hawser.cli.opened_app import is_nameless, migration_of, must_exist, opened
from hawser.errors import ConfigError
from hawser.stores import schema_of
from hawser.stores.schema import Schema
from hawser.stores.url import without_password


@click.command()
@click.option("--store", "url", metavar="URL", help="The store, for example sqlite:///jobs.db.  [default: $HAWSER_STORE]")
@click.option("--check", is_flag=True, help="Change nothing; exit with 0 when the schema is current and 1 when it is not.")
@click.option("--sql", is_flag=True, help="Change nothing; print the statements that would be run.")
@options.as_json
def migrate(*, url: str | None, check: bool, sql: bool, as_json: bool) -> None:
    """Bring a store's schema to this version.

    A store also does so by itself when it is opened, if its user may. A store whose schema is newer is refused.
    """
    if sql and (check or as_json):
        raise click.UsageError("--sql prints statements only; leave out the other options")
    url = _wanted(url)
    found = schema_of(url)
    if found is None:
        raise ConfigError(f"store: {without_password(url)!r} has no schema to migrate; memory:// is the only kind without one")
    if found.version > found.newest:
        # Opening it refuses, and says why.
        with opened(url):
            pass
    if sql:
        for statement in found.statements or [f"-- The schema is current: version {found.version}."]:
            click.echo(statement)
        return
    if not check:
        with opened(url, create=True):
            pass
    _print(url, found, check=check, as_json=as_json)
    if check and not found.current:
        raise click.exceptions.Exit(1)


def _wanted(url: str | None) -> str:
    if url is not None:
        return url
    app = Hawser()
    if is_nameless(url):
        must_exist(app, url)
    return app.config.store


def _print(url: str, found: Schema, *, check: bool, as_json: bool) -> None:
    if as_json:
        version = found.version if check else found.newest
        show.document(
            {"store": without_password(url), "version": version, "newest": found.newest, "current": version == found.newest}
        )
    elif found.current:
        show.say(f"the schema is current: version {found.version}")
    elif check:
        there = f"has version {found.version}" if found.version else "is not there yet"
        show.say(f"the schema {there}, this Hawser wants version {found.newest}; bring it up to date with: {migration_of(url)}")
    else:
        show.say(
            f"the schema went from version {found.version} to {found.newest}"
            if found.version
            else f"the schema was made: version {found.newest}"
        )
