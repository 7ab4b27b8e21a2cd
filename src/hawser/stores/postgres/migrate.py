"""The schema's versions: numbered files, applied forward, each once, whoever comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg

from hawser.errors import ConfigError, SchemaTooNew
from hawser.stores.postgres.server import in_schema
from hawser.stores.schema import Migration, Schema, migrations_in, too_new

OLDEST: Final = 14
"""The first server that can do all that the statements ask of it."""

_BEFORE: Final = (
    "create schema if not exists {schema}",
    "create table if not exists hawser.meta (name text primary key, value text not null)",
)
_READ: Final = "select value::integer from hawser.meta where name = 'schema'"
_WRITE: Final = (
    "insert into hawser.meta (name, value) values ('schema', '{version}') on conflict (name) do update set value = excluded.value"
)
_LOCK: Final = "select pg_advisory_lock(hashtext('hawser.migrate'))"
_UNLOCK: Final = "select pg_advisory_unlock(hashtext('hawser.migrate'))"


def migrations() -> list[Migration]:
    """Every migration, oldest first."""
    return migrations_in("hawser.stores.postgres")


async def version_of(con: asyncpg.Connection, schema: str) -> int:
    """The schema's version; 0 when it has none of our tables."""
    if not await con.fetchval("select to_regclass($1) is not null", f"{schema}.meta"):
        return 0
    return int(await con.fetchval(in_schema(_READ, schema)) or 0)


async def migrate(con: asyncpg.Connection, schema: str, steps: Sequence[Migration] | None = None) -> None:
    """Bring the database to this version's schema; refuse one that a newer version has changed.

    Each step is a transaction, except a live one, whose statements stand each for themselves: repeated after a crash, they
    must find what they did before. One process at a time; the others wait, and find it done.
    """
    steps = migrations() if steps is None else steps
    if await is_current(con, schema, steps):
        return
    await con.execute(in_schema(_LOCK, schema))
    try:
        if not await is_current(con, schema, steps):
            for statement in _statements(await version_of(con, schema), schema, steps):
                await con.execute(statement)
    finally:
        await con.execute(in_schema(_UNLOCK, schema))


async def is_current(con: asyncpg.Connection, schema: str, steps: Sequence[Migration]) -> bool:
    """Whether there is nothing to migrate; refuses a newer schema and an older server."""
    server, version, newest = con.get_server_version(), await version_of(con, schema), steps[-1].version
    if server.major < OLDEST:
        raise ConfigError(f"store: PostgreSQL {server.major} is too old; Hawser needs {OLDEST} or newer")
    if version > newest:
        raise SchemaTooNew(too_new(version, newest))
    return version == newest


async def schema_in(con: asyncpg.Connection, schema: str) -> Schema:
    """What stands in the database. Nothing is written."""
    steps, version = migrations(), await version_of(con, schema)
    return Schema(version, steps[-1].version, [f"{text};" for text in _statements(version, schema, steps)])


def _statements(version: int, schema: str, steps: Sequence[Migration]) -> Iterator[str]:
    """What leads from a version to the newest."""
    wanted = [step for step in steps if step.version > version]
    if not wanted:
        return
    yield from (in_schema(text, schema).format(schema=schema) for text in _BEFORE)
    for step in wanted:
        write = in_schema(_WRITE, schema).format(version=step.version)
        script = in_schema(step.script, schema).rstrip().rstrip(";")
        if step.live:
            yield from (text.strip() for text in script.split(";\n"))
            yield write
        else:
            yield f"begin;\n{script};\n{write};\ncommit"
