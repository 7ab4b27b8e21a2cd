"""Indexes of a new version on tables that may be large, made while workers go on.

A migration says `create index concurrently if not exists NAME on hawser.TABLE …`. What has to be run depends on the table: the
server refuses the statement for a table of parts, and waits for every older transaction of the database, which an empty table
does not need.
"""

from __future__ import annotations

import re
from typing import Final

import asyncpg

_CONCURRENTLY: Final = re.compile(
    r"create index concurrently if not exists (?P<name>\w+) on (?P<schema>\w+)\.(?P<table>\w+) (?P<rest>.*)", re.DOTALL
)
_KIND: Final = "select relkind::text from pg_class where oid = to_regclass($1)"
_STANDING: Final = "select indisvalid from pg_index where indexrelid = to_regclass($1)"
_IS_EMPTY: Final = "select coalesce(pg_relation_size(to_regclass($1)), 0) = 0"
_PARTS: Final = """
select c.relname from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent = to_regclass($1) and not exists (
    select from pg_index as x join pg_inherits as y on y.inhrelid = x.indexrelid
    where x.indrelid = c.oid and y.inhparent = to_regclass($2)
) order by c.relname"""


def stands_alone(statement: str) -> bool:
    """Whether this statement of a migration is run for itself."""
    return _CONCURRENTLY.match(_without_comments(statement)) is not None


async def statements_for(con: asyncpg.Connection, statement: str) -> list[str]:
    """What has to be run so that the index is there; nothing when it is. A part that another process makes meanwhile is found by
    asking again."""
    made = _CONCURRENTLY.match(_without_comments(statement))
    assert made is not None
    name, schema, table, rest = made.group("name", "schema", "table", "rest")
    if await con.fetchval(_KIND, f"{schema}.{table}") != "p":
        return await _of_table(con, schema, name, table, rest)
    # Parts that are made from now on have it from the start.
    there = await con.fetchval(_STANDING, f"{schema}.{name}") is not None
    found = [] if there else [_in_transaction(f"create index {name} on only {schema}.{table} {rest}")]
    for (part,) in await con.fetch(_PARTS, f"{schema}.{table}", f"{schema}.{name}"):
        of_part = f"{part}{name.removeprefix(table)}"
        found += await _of_table(con, schema, of_part, part, rest)
        found.append(_in_transaction(f"alter index {schema}.{name} attach partition {schema}.{of_part}"))
    return found


async def _of_table(con: asyncpg.Connection, schema: str, name: str, table: str, rest: str) -> list[str]:
    valid = await con.fetchval(_STANDING, f"{schema}.{name}")
    if valid:
        return []
    # One that is not valid was given up half made.
    found = [] if valid is None else [f"drop index concurrently {schema}.{name}"]
    if await con.fetchval(_IS_EMPTY, f"{schema}.{table}"):
        return [*found, _in_transaction(f"create index {name} on {schema}.{table} {rest}")]
    return [*found, f"create index concurrently {name} on {schema}.{table} {rest}"]


def _in_transaction(statement: str) -> str:
    """It needs a lock for a moment, and is begun again when it does not get it."""
    return f"begin;\n{statement};\ncommit"


def _without_comments(statement: str) -> str:
    return "\n".join(line for line in statement.splitlines() if not line.startswith("--")).strip()
