"""A database, a role, a pooler or an address that will not do: an error that says what is wrong and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from hawser.errors import ConfigError, StoreError, UnknownStore
from hawser.stores import make_store
from tests.postgres import emptied, new_schema, own_schema, postgres, server, versions, with_schema


@pytest.fixture(scope="module", params=versions())
def database(request):
    return server(request.param)


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


@asynccontextmanager
async def made(url: str, make: str, remove: str) -> AsyncIterator[asyncpg.Connection]:
    con = await asyncpg.connect(url)
    try:
        await con.execute(make)
        yield con
    finally:
        await con.execute(remove)
        await con.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_every_text_is_refused(database, encoding):
    name = new_schema()
    make = f"create database {name} encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
    async with made(database, make, f"drop database {name}"):
        store = make_store(with_schema(with_database(database, name), name))
        with pytest.raises(ConfigError, match=f"encoded in {encoding}, .* createdb --encoding=UTF8 --template=template0 NAME"):
            await store.open()
        await store.close()


async def test_a_role_that_may_not_make_the_schema_is_told_how_to_get_one(database):
    role = schema = new_schema()
    remove = f"drop schema if exists {schema} cascade; drop role {role}"
    async with made(database, f"create role {role} login", remove) as con:
        store = make_store(with_schema(as_role(database, role), schema))
        said = f"the role {role} may not make .* administrator run there: create schema {schema} authorization {role}"
        with pytest.raises(ConfigError, match=said):
            await store.open()
        # What the message says is enough.
        await con.execute(f"create schema {schema} authorization {role}")
        await store.open()
        await store.close()


async def test_a_role_that_may_not_use_the_tables_is_told_whose_they_are(database):
    schema = f"{own_schema()}_own"
    url, role = with_schema(database, schema), new_schema()
    await emptied(url)
    make = f"create role {role} login; grant usage on schema {schema} to {role}"
    async with made(database, make, f"drop owned by {role}; drop role {role}"):
        store = make_store(as_role(url, role))
        with pytest.raises(StoreError, match=r"permission denied for table .* owns the schema"):
            await store.open()
        await store.close()


@pytest.fixture
async def pooler() -> AsyncIterator[str]:
    """What PgBouncer answers to settings of the session, as it does without `ignore_startup_parameters`."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4))
        if int.from_bytes(await reader.readexactly(4)) == 80877103:  # may we speak TLS?
            writer.write(b"N")
            length = int.from_bytes(await reader.readexactly(4))
            await reader.readexactly(4)
        asked = (await reader.readexactly(length - 8)).split(b"\0")
        assert b"enable_seqscan" in asked
        fields = b"SFATAL\0C08P01\0Munsupported startup parameter: enable_seqscan\0\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with listening:
        yield f"postgresql://app@127.0.0.1:{listening.sockets[0].getsockname()[1]}/jobs"


async def test_a_pooler_that_refuses_our_settings_is_recognised(pooler):
    store = make_store(pooler)
    with pytest.raises(ConfigError, match=r"seems to be a pooler .* Add pooled=yes to the URL"):
        await store.open()
    await store.close()


async def test_a_pooler_that_loses_our_statements_is_recognised(database):
    """Another session answers than the one in which a statement was prepared."""
    url = with_schema(database, f"{own_schema()}_own")
    await emptied(url)
    store = postgres(url)
    await store.open()
    await store.stats()
    await store.server.connection("read").do(lambda con: con.execute("deallocate all"))
    with pytest.raises(ConfigError, match=r"prepared statement .* does not exist.* Add pooled=yes to the URL"):
        await store.stats()
    await store.close()


@pytest.mark.parametrize("scheme", ["postgresql+asyncpg", "postgresql+psycopg", "postgres+psycopg2"])
def test_an_address_of_sqlalchemy_is_told_from_ours(scheme):
    with pytest.raises(UnknownStore, match=rf"names a driver, which Hawser chooses itself; write {scheme.partition('+')[0]}://"):
        make_store(f"{scheme}://app@localhost/jobs")
