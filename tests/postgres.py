"""Real PostgreSQL servers for tests: one of each version for the whole run, a schema for each test.

`HAWSER_TEST_POSTGRES` names servers to use instead, separated by spaces.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg

from hawser.clock import Clock
from hawser.lab.cluster import Cluster, find_bins
from hawser.stores import make_store
from hawser.testing import ManualClock
from tests.repetition import LONG

if TYPE_CHECKING:
    from hawser.stores.postgres import PostgresStore

GIVEN = "HAWSER_TEST_POSTGRES"
SETTINGS = {"fsync": "off", "shared_buffers": "128MB", "max_connections": "300", "synchronous_commit": "on"}
"""What is tested here is not the disk. Tests of durability start servers of their own."""

_numbers = itertools.count()
_keepers: list[subprocess.Popen[bytes]] = []
"""They end by themselves, after us."""


@cache
def versions() -> list[str]:
    """What the tests are run on: the servers that were named, or the newest version found; in a long run the oldest, too."""
    if given := os.environ.get(GIVEN):
        return given.split()
    found = sorted(find_bins())
    return [str(version) for version in dict.fromkeys((found[0], found[-1]) if LONG else found[-1:])]


@cache
def server(version: str) -> str:
    """The URL of a running server. The processes of one test run share it; the last of them to end stops it."""
    remember_array_types()
    if "://" in version:
        return version
    folder = (
        Path(tempfile.gettempdir()) / f"hawser-test-pg-{os.environ.get('PYTEST_XDIST_TESTRUNUID', str(os.getpid()))}-{version}"
    )
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        address = folder / "address"
        if not address.exists():
            keeper = [sys.executable, "-m", "tests.postgres", version, str(folder), str(_run_pid())]
            _keepers.append(subprocess.Popen(keeper, start_new_session=True, cwd=Path(__file__).parents[1]))
            end = time.monotonic() + 60
            while not address.exists():
                assert time.monotonic() < end, f"PostgreSQL {version} did not start; see {folder}"
                time.sleep(0.02)
    return str(json.loads(address.read_text()))


@cache
def remember_array_types() -> None:
    """What asyncpg asks each new session about PostgreSQL's own array types, it asks once in this process.

    Nearly every test has sessions of its own, and each asked three times and more: a third of the 100 ms of the server's CPU that
    a test of one job took.
    """
    connection: Any = asyncpg.Connection
    ask = connection._introspect_types
    known: dict[tuple[int, ...], Any] = {}

    async def asked_once(self: Any, typeoids: Iterable[int], timeout: float) -> tuple[Any, SimpleNamespace]:
        types = tuple(sorted(typeoids))
        if types not in known:
            found, statement = await ask(self, types, timeout)
            if max(types) < FIRST_OWN_TYPE:
                known[types] = found
            return found, statement
        return known[types], SimpleNamespace(name="asked before: no statement has taken another's place")

    connection._introspect_types = asked_once


FIRST_OWN_TYPE = 16_384
"""Types with smaller numbers are the same in each database of every version."""


def _run_pid() -> int:
    """The process whose end is the end of the test run."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def new_schema() -> str:
    """A name that no other test of this run has."""
    return f"t_{os.getpid()}_{next(_numbers)}"


def own_schema() -> str:
    """The schema that the tests of this process use one after the other."""
    return f"t_{os.getpid()}"


def postgres(url: str, *, clock: Clock | None = None) -> PostgresStore:
    """The store that the URL names, by its own type."""
    return cast("PostgresStore", make_store(url, clock=clock))


async def emptied(url: str) -> None:
    """Make the store that the URL names as if it were new. One that this process has made before is only cleared."""
    schema = parse_qs(urlsplit(url).query)["schema"][0]
    if url not in _made:
        store = postgres(url)
        await store.open()
        await store.close()
        _made.add(url)
    _cleaner(url.partition("&schema=")[0].partition("?schema=")[0]).execute(
        _CLEAR.replace("SCHEMA", schema).replace("FIRST_DAYS", _FIRST_DAYS)
    )


_CLEAR = """
do $$
declare
    each record;
begin
    set local session_replication_role = replica; -- no triggers: what they would count is cleared, too
    for each in
        select c.oid::regclass as name, c.relispartition and c.relname not in (FIRST_DAYS) as is_day,
            pg_relation_size(c.oid) > 200000 as is_large
        from pg_class as c
        where c.relnamespace = 'SCHEMA'::regnamespace and c.relkind = 'r' and c.relname not in ('meta', 'control')
    loop
        execute format(
            case when each.is_day then 'drop table %s' when each.is_large then 'truncate %s' else 'delete from %s' end, each.name
        );
    end loop;
    perform setval(format('%I.%I', s.schemaname, s.sequencename), s.start_value, false)
    from pg_sequences as s where s.schemaname = 'SCHEMA';
    update SCHEMA.control set version = 1;
    delete from SCHEMA.meta where name <> 'schema';
end $$
"""
"""To truncate all tables takes ten times as long as to delete the few rows that most tests leave."""

_FIRST_DAYS = ", ".join(f"'done_{day}'" for day in (ManualClock().now() // (86_400 * 1_000_000) + n for n in range(2)))
"""Tables of days that nearly every store has as soon as it is open: they stay. To make them anew took a third of a test."""

_made: set[str] = set()
"""The stores whose schema stands."""


async def until_it_blocks(con: asyncpg.Connection) -> None:
    """Until another session waits for what this transaction holds."""
    asked = "select exists (select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid)))"
    async with asyncio.timeout(20):
        while not await con.fetchval(asked):
            await asyncio.sleep(0.005)


@cache
def _cleaner(url: str) -> psycopg.Connection[Any]:
    con = psycopg.connect(url, autocommit=True)
    atexit.register(con.close)
    return con


def with_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={schema}&durability=relaxed"


def _serve(version: str, folder: Path, run: int) -> None:
    """Keep a server until the test run has ended."""
    with Cluster(version=int(version), settings=SETTINGS) as cluster:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        (folder / "new").write_text(json.dumps(cluster.url))
        (folder / "new").rename(folder / "address")
        while _lives(run):
            time.sleep(0.5)
    for name in ("address", "lock"):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
