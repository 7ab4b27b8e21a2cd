"""What bounds a rate: the CPU that workers and server spent, what the server waited for, and what it wrote."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hawser.lab import process_tree
from hawser.lab.store_under_test import StorePlace, ask_redis, connected

if TYPE_CHECKING:
    import asyncpg

SERVER_LOOK_EVERY_S: Final = 0.1
"""Seconds between two looks at what the server waits for."""

SERVER_PROGRAMS: Final = ("postgres", "valkey-server", "redis-server")

_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What some work cost."""

    seconds: float
    worker_cpu_s: float
    server_cpu_s: float
    """0 where the store is a file: then the workers do its work."""
    other_cpu_s: float
    """The experiment's own process, which enqueues and looks on."""
    log_bytes: int
    waits: dict[str, float]
    """What the server's processes that worked for us were doing, as shares; `CPU` is: computing."""

    def per_job(self, jobs: int) -> dict[str, Any]:
        """As figures. Of no job at all, the cost is that of one."""
        cores, jobs = os.cpu_count() or 1, max(1, jobs)
        return {
            "worker_us": round(self.worker_cpu_s / jobs * 1e6, 1),
            "server_us": round(self.server_cpu_s / jobs * 1e6, 1) if self.log_bytes else None,
            "log_bytes": round(self.log_bytes / jobs) or None,
            "cpu_share": round(self.cpu_s / self.seconds / cores, 2),
            "waits": self.waits,
        }

    @property
    def cpu_s(self) -> float:
        return self.worker_cpu_s + self.server_cpu_s + self.other_cpu_s


class BusyMeter:
    """Reads before and after."""

    def __init__(self) -> None:
        self.spent: Spent | None = None

    def require(self) -> Spent:
        assert self.spent is not None
        return self.spent


@asynccontextmanager
async def metered(place: StorePlace, url: str) -> AsyncIterator[BusyMeter]:
    """What happens meanwhile is measured; `spent` is there in the end."""
    meter = BusyMeter()
    if place.kind != "postgres":
        log = await _redis_log(place, url)
        began, before = time.monotonic(), _cpu(place)
        yield meter
        meter.spent = _spent(place, began, before, max(0, await _redis_log(place, url) - log), Counter())
        return
    async with connected(url) as con:
        log = await con.fetchval("select pg_current_wal_lsn()")
        waits: Counter[str] = Counter()
        enough = asyncio.Event()
        watching = asyncio.ensure_future(_watch(con, waits, enough))
        began, before = time.monotonic(), _cpu(place)
        try:
            yield meter
        finally:
            # Not cancelled: that would leave its question open on the connection.
            enough.set()
            await watching
        written = int(await con.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", log))
        meter.spent = _spent(place, began, before, written, waits)


async def _redis_log(place: StorePlace, url: str) -> int:
    """Bytes of the log of a Redis server; it becomes shorter when it is rewritten."""
    if place.kind != "redis":
        return 0
    info = (await ask_redis(url, "INFO", "persistence")).decode()
    found = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return int(found.get("aof_current_size", 0))


async def _watch(con: asyncpg.Connection, waits: Counter[str], enough: asyncio.Event) -> None:
    asked = "select coalesce(wait_event, 'CPU') from pg_stat_activity where application_name = 'hawser' and state = 'active'"
    while not enough.is_set():
        waits.update(event for (event,) in await con.fetch(asked))
        with suppress(TimeoutError):
            await asyncio.wait_for(enough.wait(), SERVER_LOOK_EVERY_S)


def _spent(place: StorePlace, began: float, before: dict[int, tuple[str, float]], written: int, waits: Counter[str]) -> Spent:
    total = {"server": 0.0, "worker": 0.0, "other": 0.0}
    for pid, (kind, seconds) in _cpu(place).items():
        total[kind] += seconds - before.get(pid, (kind, 0.0))[1]
    seen = sum(waits.values()) or 1
    return Spent(
        seconds=time.monotonic() - began,
        worker_cpu_s=total["worker"],
        server_cpu_s=total["server"],
        other_cpu_s=total["other"],
        log_bytes=written,
        waits={name: round(count / seen, 2) for name, count in waits.most_common(4)},
    )


def _cpu(place: StorePlace) -> dict[int, tuple[str, float]]:
    """Seconds of CPU by process: those of the server, the workers that we started, our own."""
    server = _server(place)
    kinds = dict.fromkeys(process_tree.descendants(os.getpid()), "worker")
    kinds |= dict.fromkeys(server, "server") | {os.getpid(): "other"}
    return {pid: (kind, cpu_of([pid])) for pid, kind in kinds.items()}


def cpu_of(pids: Iterable[int]) -> float:
    """Seconds of CPU that processes have spent; none of those that are gone."""
    spent = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent += int(fields[11]) + int(fields[12])
    return spent / _TICKS


def _server(place: StorePlace) -> list[int]:
    """The processes of the store's server, which may share its machine with others of its kind: one of our own is known by its
    family, one that was there before only by name."""
    if place.kind == "sqlite":
        return []
    if place.server is not None:
        return [place.server.pid, *process_tree.descendants(place.server.pid)]
    return [pid for pid in process_tree.everything() if process_tree.program(pid) in SERVER_PROGRAMS]
