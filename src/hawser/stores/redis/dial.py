"""A new connection: to the server that the URL names, or to the one that its sentinels name."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection

from hawser.stores.redis.address import Address, Sentinels
from hawser.stores.redis.errors import REDIS_UNREACHED, NoPrimary

COMMON: Final[dict[str, Any]] = {"protocol": 2, "socket_timeout": None}
"""The driver's own deadline of 5 s would end calls before ours, and a subscription that hears nothing."""


KEPT_ALIVE: Final[dict[str, Any]] = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value
        for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    },
}
"""A subscription to a machine that is gone is noticed within about ten seconds, without a command."""


class Dialer:
    """Makes connections, and knows which server the sentinels named last."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._primary: tuple[str, int] | None = None

    async def dial(self) -> AbstractConnection:
        """A connection to the server that takes writes, with the user's rights and the database."""
        address = self._address
        if address.sentinels is None:
            return await _to_server(address, address.host, address.port)
        host, port = self._primary = await _primary(address, address.sentinels)
        con = await _to_server(address, host, port)
        try:
            async with asyncio.timeout(address.connect_timeout):
                await _check_role(con, f"{host}:{port}")
        except BaseException:
            await con.disconnect(nowait=True)
            raise
        return con

    def is_current(self, con: AbstractConnection) -> bool:
        """Whether it leads to the primary as far as we know. One that was not used for a while may lead to the one before."""
        return self._primary is None or not isinstance(con, Connection) or (con.host, con.port) == self._primary


async def _check_role(con: AbstractConnection, where: str) -> None:
    """During a promotion the sentinel that was asked may not have heard of it yet."""
    await con.send_command("INFO", "replication")
    if fields(await con.read_response()).get("role") != "master":
        raise NoPrimary(f"{where}, which the sentinels name, takes no writes; try again")


async def _to_server(address: Address, host: str, port: int) -> AbstractConnection:
    login = {"db": address.db, "username": address.user, "password": address.password, "client_name": "hawser"}
    if address.scheme == "unix":
        return await _connected(address, UnixDomainSocketConnection(path=address.path, **COMMON, **login))
    return await _connected(address, _by_tcp(address, host, port, login))


async def _primary(address: Address, sentinels: Sentinels) -> tuple[str, int]:
    """What the first sentinel that answers says."""
    told = []
    for host, port in sentinels.hosts:
        try:
            found = await _ask(address, sentinels, host, port)
        except REDIS_UNREACHED as error:
            told.append(f"{host}:{port} did not answer ({error or type(error).__name__})")
        else:
            if found is not None:
                return found
            told.append(f"{host}:{port} does not know it")
    raise NoPrimary(f"no sentinel named the primary: {'; '.join(told)}; check the hosts and master={sentinels.master} in the URL")


async def _ask(address: Address, sentinels: Sentinels, host: str, port: int) -> tuple[str, int] | None:
    con = await _connected(address, _by_tcp(address, host, port, {"username": sentinels.user, "password": sentinels.password}))
    try:
        async with asyncio.timeout(address.connect_timeout):
            await con.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinels.master)
            found = await con.read_response()
    finally:
        with suppress(*REDIS_UNREACHED):
            await con.disconnect(nowait=True)
    return None if found is None else (found[0].decode(), int(found[1]))


def _by_tcp(address: Address, host: str, port: int, login: dict[str, Any]) -> AbstractConnection:
    common = {**COMMON, **login, **KEPT_ALIVE, "socket_connect_timeout": address.connect_timeout}
    if address.scheme == "rediss":
        common |= {"ssl_min_version": ssl.TLSVersion.TLSv1_2, **address.tls}
        return SSLConnection(host=host, port=port, **common)
    return Connection(host=host, port=port, **common)


async def _connected(address: Address, con: AbstractConnection) -> AbstractConnection:
    connect: Callable[[], Awaitable[None]] = con.connect
    try:
        async with asyncio.timeout(address.connect_timeout):
            await connect()
    except BaseException:
        await con.disconnect(nowait=True)
        raise
    return con


def fields(info: bytes) -> dict[str, str]:
    """The fields of INFO."""
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}
