"""A server below the oldest version that the Redis store knows is refused before it is asked for anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hawser import ConfigError
from hawser.stores import make_store


@asynccontextmanager
async def a_server_that_says(info: str) -> AsyncIterator[tuple[int, list[bytes]]]:
    """What INFO is, and nothing else: such old servers are not to be had here. Gives its port, and the commands it is sent."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            asked.append(words[0].upper())
            if words[0].upper() == b"INFO":
                writer.write(b"$%d\r\n%s\r\n" % (len(info), info.encode()))
            else:
                writer.write(b"+OK\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


@pytest.mark.parametrize("durability", ["durable", "relaxed"])
@pytest.mark.parametrize(
    ("info", "told"),
    [
        ("redis_version:6.2.14\r\n", r"version 6\.2\.14; Hawser needs Redis 7\.0 or newer"),
        ("redis_version:7.2.4\r\nvalkey_version:7.0.15\r\n", r"version 7\.0\.15; Hawser needs Valkey 7\.2 or newer"),
        ("redis_mode:standalone\r\n", r"version 0\.0; Hawser needs Redis 7\.0 or newer"),
    ],
)
async def test_an_old_server_is_refused_and_is_sent_no_script(info, told, durability):
    async with a_server_that_says(info) as (port, asked):
        store = make_store(f"redis://127.0.0.1:{port}/0?durability={durability}")
        with pytest.raises(ConfigError, match=told):
            await store.open()
        await store.close()
    assert set(asked) <= {b"CLIENT", b"INFO", b"SELECT"}
