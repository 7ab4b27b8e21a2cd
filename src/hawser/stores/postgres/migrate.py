"""The schema's versions: numbered files, applied forward, each once, by the process that comes first; and the functions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg

from hawser.errors import ConfigError, SchemaTooNew, StoreUnavailable
from hawser.stores.postgres.index_building import stands_alone, statements_for
from hawser.stores.postgres.server import in_schema
from hawser.stores.postgres.stored_functions import functions
from hawser.stores.schema import Migration, Schema, migrations_in, too_new

OLDEST_POSTGRES: Final = 14
"""The first server that can do all that the statements ask of it."""

ENCODING: Final = "UTF8"

LOCK_MS: Final = 200
"""Milliseconds for which a step waits for a lock, and others behind it."""

LOCK_RETRY_S: Final = 0.5
"""Seconds until it is tried again."""

TOLD_EVERY: Final = 20
"""Tries after which the log says again that it waits."""

_logger = logging.getLogger("hawser.store")

_BEFORE: Final = (
    # `create schema if not exists` asks for the right to make one also where it is there.
    "do $$ begin if to_regnamespace('{schema}') is null then create schema {schema}; end if; end $$",
    "create table if not exists hawser.meta (name text primary key, value text not null)",
)
_READ: Final = "select value::integer from hawser.meta where name = 'schema'"
_WRITE: Final = (
    "insert into hawser.meta (name, value) values ('schema', '{version}') on conflict (name) do update set value = excluded.value"
)
# Which functions are there stands in a comment on one of them: it comes and goes with them, also in a dump.
_READ_FUNCTIONS: Final = "select obj_description(to_regprocedure('hawser.now(bigint)'), 'pg_proc')"
_WRITE_FUNCTIONS: Final = "comment on function hawser.now(bigint) is '{revision} {digest}'"
# Tried again and again: one who waits for it inside of a statement would be waited for by an index that is made concurrently.
_LOCK: Final = "select pg_try_advisory_lock(hashtext('hawser.migrate'))"
_UNLOCK: Final = "select pg_advisory_unlock(hashtext('hawser.migrate'))"


def migrations() -> list[Migration]:
    """Every migration, oldest first."""
    return migrations_in("hawser.stores.postgres")


async def version_of(con: asyncpg.Connection, schema: str) -> int:
    """The schema's version; 0 when it has none of our tables."""
    if not await con.fetchval("select to_regclass($1) is not null", f"{schema}.meta"):
        return 0
    return int(await con.fetchval(in_schema(_READ, schema)) or 0)


async def _functions_of(con: asyncpg.Connection, schema: str) -> str | None:
    """The revision and digest of the functions in the database; None when it has none, or those of migrations only."""
    written: str | None = await con.fetchval(in_schema(_READ_FUNCTIONS, schema))
    return written


async def migrate(
    con: asyncpg.Connection, schema: str, steps: Sequence[Migration] | None = None, *, within: float | None = None
) -> None:
    """Bring the database to this version's schema and functions; refuse one that a newer version has changed.

    Each step is a transaction, except a live one, whose statements stand each for themselves: repeated after a crash, they
    must find what they did before. Indexes that are made concurrently come before the transaction of their step. One process at a
    time; the others wait, up to `within` seconds, and find it done.
    """
    steps = migrations() if steps is None else steps
    if await is_current(con, schema, steps):
        return
    await _lock(con, schema, within)
    try:
        if not await is_current(con, schema, steps):
            await _apply(con, schema, steps)
    finally:
        await con.execute(in_schema(_UNLOCK, schema))


async def _lock(con: asyncpg.Connection, schema: str, within: float | None) -> None:
    end = None if within is None else time.monotonic() + within
    while not await con.fetchval(in_schema(_LOCK, schema)):
        if end is not None and time.monotonic() > end:
            raise StoreUnavailable(f"another process has been changing the schema for {within:g} s; wait until it is done")
        await asyncio.sleep(LOCK_MS / 1000)


async def _apply(con: asyncpg.Connection, schema: str, steps: Sequence[Migration]) -> None:
    try:
        for statement in await _statements(con, schema, steps):
            if stands_alone(statement):
                await _build(con, statement)
            else:
                await _execute(con, statement)
    except asyncpg.PostgresError as error:
        if con.is_in_transaction():
            await con.execute("rollback")
        if not isinstance(error, asyncpg.InsufficientPrivilegeError):
            raise
        [(role, database)] = await con.fetch("select quote_ident(current_user), quote_ident(current_database())")
        raise ConfigError(
            f"store: the role {role} may not make or change the tables in the schema {schema} of {database}: {error}. Have an"
            f" administrator run there: create schema {schema} authorization {role}. If the schema is there and another role owns"
            " it, use that role in the URL"
        ) from error


async def _build(con: asyncpg.Connection, statement: str) -> None:
    """Make an index, also on parts that other processes make or drop meanwhile."""
    while todo := await statements_for(con, statement):
        for each in todo:
            try:
                await _execute(con, each)
            except asyncpg.UndefinedTableError:
                if con.is_in_transaction():
                    await con.execute("rollback")


async def _execute(con: asyncpg.Connection, statement: str) -> None:
    """Run a step. A transaction that changes a table waits for those that use it, and all that come later wait behind it, claims
    too: so it gives up after a moment, lets the others through, and begins again."""
    waits = 0
    while True:
        try:
            await con.execute(statement.replace("begin;", f"begin;\nset local lock_timeout = {LOCK_MS};", 1))
        except asyncpg.LockNotAvailableError as error:
            await con.execute("rollback")
            if waits % TOLD_EVERY == 0:
                _logger.warning("migrate: waits for a transaction that uses the tables: %s", error)
            waits += 1
            await asyncio.sleep(LOCK_RETRY_S)
        else:
            return


async def is_current(con: asyncpg.Connection, schema: str, steps: Sequence[Migration]) -> bool:
    """Whether there is nothing to migrate; refuses a newer schema, an older server and one that cannot hold every text."""
    server, version, newest = con.get_server_version(), await version_of(con, schema), steps[-1].version
    if server.major < OLDEST_POSTGRES:
        raise ConfigError(f"store: PostgreSQL {server.major} is too old; Hawser needs {OLDEST_POSTGRES} or newer")
    if (encoding := getattr(con.get_settings(), "server_encoding", ENCODING)) != ENCODING:
        raise ConfigError(
            f"store: the database is encoded in {encoding}, which cannot hold every text; make one in {ENCODING}, for example"
            f" with: createdb --encoding={ENCODING} --template=template0 NAME"
        )
    if version > newest:
        raise SchemaTooNew(too_new(version, newest))
    if version < newest:
        return False
    return not (_has_functions(steps) and functions().are_newer_than(await _functions_of(con, schema)))


async def schema_in(con: asyncpg.Connection, schema: str) -> Schema:
    """What stands in the database. Nothing is written."""
    steps, version = migrations(), await version_of(con, schema)
    found: list[str] = []
    for text in await _statements(con, schema, steps):
        found += await statements_for(con, text) if stands_alone(text) else [text]
    return Schema(version, steps[-1].version, [f"{text};" for text in found])


def _has_functions(steps: Sequence[Migration]) -> bool:
    """The functions belong to the newest schema; tests also stop at an older one."""
    return steps[-1].version == migrations()[-1].version


async def _statements(con: asyncpg.Connection, schema: str, steps: Sequence[Migration]) -> list[str]:
    """What leads from what stands there to the newest."""
    statements = list(_steps_from(await version_of(con, schema), schema, steps))
    if _has_functions(steps) and (ours := functions()).are_newer_than(await _functions_of(con, schema)):
        write = in_schema(_WRITE_FUNCTIONS, schema).format(revision=ours.revision, digest=ours.digest)
        # In one transaction with the newest step: functions of before may not fit its tables, and workers call them meanwhile.
        before = statements.pop().removesuffix("commit") if statements and statements[-1].startswith("begin;") else "begin;\n"
        statements.append(f"{before}{in_schema(ours.script, schema)}{write};\ncommit")
    return statements


def _steps_from(version: int, schema: str, steps: Sequence[Migration]) -> Iterator[str]:
    wanted = [step for step in steps if step.version > version]
    if not wanted:
        return
    yield from (in_schema(text, schema).format(schema=schema) for text in _BEFORE)
    for step in wanted:
        write = in_schema(_WRITE, schema).format(version=step.version)
        script = in_schema(step.script, schema).rstrip().rstrip(";")
        texts = script.split(";\n")
        if step.live:
            yield from (text.strip() for text in texts)
            yield write
        else:
            yield from (text.strip() for text in texts if stands_alone(text))
            script = ";\n".join(text for text in texts if not stands_alone(text))
            yield f"begin;\n{script};\n{write};\ncommit"
