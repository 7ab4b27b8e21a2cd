"""The schema's versions: numbered files, applied forward, each once, whoever comes first."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import asyncpg

from hawser.errors import ConfigError, SchemaTooNew
from hawser.stores.postgres.server import in_schema

OLDEST: Final = 140000
"""The first server whose plans and locks were tried: PostgreSQL 14."""

BEFORE: Final = (
    "create schema if not exists {schema}",
    "create table if not exists hawser.meta (name text primary key, value text not null)",
)
_READ: Final = "select value::integer from hawser.meta where name = 'schema'"
WRITE: Final = (
    "insert into hawser.meta (name, value) values ('schema', '{}') on conflict (name) do update set value = excluded.value"
)
_LOCK: Final = "select pg_advisory_xact_lock(hashtext('hawser.migrate'))"


def migrations() -> list[tuple[int, str]]:
    """Version and SQL of every migration, oldest first."""
    folder = files("hawser.stores.postgres") / "migrations"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name.split("_")[0]), entry.read_text(encoding="utf-8")) for entry in found)


def statements(version: int, schema: str) -> list[str]:
    """What brings a schema of that version to the newest one, in one transaction."""
    wanted = [(number, script) for number, script in migrations() if number > version]
    scripts = [text for number, script in wanted for text in (script.rstrip().rstrip(";"), WRITE.format(number))]
    return [in_schema(text, schema).replace("{schema}", schema) for text in (*BEFORE, *scripts)] if wanted else []


async def version_of(con: asyncpg.Connection, schema: str) -> int:
    """The schema's version; 0 when it has none of our tables."""
    if not await con.fetchval("select to_regclass($1) is not null", f"{schema}.meta"):
        return 0
    return int(await con.fetchval(in_schema(_READ, schema)) or 0)


async def migrate(con: asyncpg.Connection, schema: str) -> None:
    """Bring the database to this version's schema; refuse one that a newer version has changed."""
    server = con.get_server_version()
    if server.major * 10_000 < OLDEST:
        raise ConfigError(f"store: PostgreSQL {server.major} is too old; Hawser needs 14 or newer")
    if await _is_current(con, schema):
        return
    async with con.transaction():
        await con.execute(in_schema(_LOCK, schema))
        if not await _is_current(con, schema):
            for statement in statements(await version_of(con, schema), schema):
                await con.execute(statement)


async def _is_current(con: asyncpg.Connection, schema: str) -> bool:
    version, newest = await version_of(con, schema), migrations()[-1][0]
    if version > newest:
        raise SchemaTooNew(
            f"the schema has version {version}, this Hawser knows {newest}; upgrade Hawser (an older one may not write here)"
        )
    return version == newest
