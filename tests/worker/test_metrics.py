"""`hawser worker --metrics-port`: the figures of all processes, also of those that died; health, readiness, rollups."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hawser import Hawser
from hawser.errors import ConfigError
from hawser.store.rollup import Measured
from hawser.stores.memory import MemoryStore
from hawser.supervisor.metrics_files import Gathered
from hawser.supervisor.status_server import AWAY_FOR, StatusServer
from hawser.telemetry.events import Events
from hawser.telemetry.lines import LineHandler
from hawser.telemetry.meter import Meter
from hawser.telemetry.page import Pages, Sheet
from hawser.testing import Fault, FaultyStore
from hawser.worker.metrics_file import LAST_WRITE_WITHIN_S, ProcessMeter
from tests.worker.conftest import ended, working
from tests.worker.processes import eventually, fleet


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def total(text: str, name: str, **labels: str) -> float:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def nap_there(seconds: float) -> None:
    """Stands for the worker's own."""


def address_of(log: str) -> str:
    found = re.search(r"metrics on (http://127\.0\.0\.1:\d+)/metrics", log)
    assert found is not None
    return found[1]


def test_the_figures_of_all_processes_outlive_them(tmp_path: Path):
    with fleet(tmp_path) as ships, Hawser(ships.url) as store:
        store.task(name="nap")(nap_there)
        process = ships.start("--processes", "2", "--slots", "4", "--metrics-port", "0")
        url = address_of(ships.log(process))
        eventually(lambda: ships.log(process).count("is ready") == 2)
        store.enqueue_many([store.tasks["nap"].job(seconds=0.01) for _ in range(20)])
        eventually(lambda: total(get(f"{url}/metrics")[1], "hawser_settled_total") == 20, why=lambda: get(f"{url}/metrics")[1])
        text = get(f"{url}/metrics")[1]
        assert total(text, "hawser_claimed_total") == 20
        assert total(text, "hawser_run_seconds_count") == 20
        assert (total(text, "hawser_worker_processes"), total(text, "hawser_worker_slots")) == (2, 8)
        assert get(f"{url}/healthz") == (200, "ok\n")
        eventually(lambda: get(f"{url}/readyz")[0] == 200)
        assert get(f"{url}/else")[0] == 404
        assert total(text, "hawser_worker_restarts_total") == 0
        os.kill(ships.starts()[0].pid, signal.SIGKILL)
        eventually(lambda: ships.log(process).count("is ready") == 3)
        store.enqueue_many([store.tasks["nap"].job(seconds=0.01) for _ in range(5)])
        eventually(lambda: total(get(f"{url}/metrics")[1], "hawser_settled_total") == 25)
        assert total(get(f"{url}/metrics")[1], "hawser_worker_restarts_total") == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        minutes = asyncio.run(rollups(ships.url))
        assert 0 < sum(sum(minute.run) for minute in minutes) <= 25, "a process that is killed takes its last seconds along"


def poison_there(kind: str) -> None:
    """As above."""


def test_outcomes_that_are_written_for_a_dead_process_are_counted(tmp_path: Path):
    with fleet(tmp_path) as ships, Hawser(ships.url) as store:
        store.task(name="poison", max_attempts=2)(poison_there)
        process = ships.start("--metrics-port", "0")
        url = address_of(ships.log(process))
        store.tasks["poison"].enqueue(kind="kill")

        def settled(outcome: str) -> float:
            return total(get(f"{url}/metrics")[1], "hawser_settled_total", task="poison", outcome=outcome)

        eventually(lambda: settled("dead") == 1, why=lambda: get(f"{url}/metrics")[1])
        assert settled("retry") == 1


async def rollups(url: str) -> Any:
    async with Hawser(url) as app:
        return await (await app.store()).rollups(5)


async def test_a_worker_leaves_its_times_in_the_rollup(app: Hawser):
    @app.task
    async def work() -> None:
        await asyncio.sleep(0.03)  # the time that is measured

    async with working(app):
        await ended(app, (await work.aenqueue()).id)
    [this] = [minute for minute in await (await app.store()).rollups(2) if sum(minute.run)]
    assert (sum(this.run), sum(this.wait)) == (1, 1)


async def test_a_store_that_hangs_does_not_keep_a_worker_from_ending():
    hanging = FaultyStore(MemoryStore(), sleep=lambda _: asyncio.Event().wait())
    process_meter = ProcessMeter(hanging, Events())
    hanging.next("measure", Fault.DELAY, times=2)
    process_meter.meter.give_back([Measured("q", "t", "run", 1, 1)])
    process_meter.start()
    while not hanging.calls["measure"]:
        await asyncio.sleep(0)
    async with asyncio.timeout(LAST_WRITE_WITHIN_S + 5):
        await process_meter.stop()


async def test_processes_of_a_host_with_dots_have_each_their_file(tmp_path: Path):
    gathered = Gathered(tmp_path)
    for name in ("a.example-1-x", "a.example-2-y"):
        process_meter = ProcessMeter(MemoryStore(), Events(), gathered.file(name))
        process_meter.meter.lost(1)
        await process_meter.write()
    (tmp_path / "a.example-3-z.new").write_bytes(b"half")
    (tmp_path / "a.example-4-z").write_bytes(b"torn")
    assert gathered.readings().counts["hawser_lost_leases_total"] == {(): 2}
    gathered.ended("a.example-1-x")
    assert not (tmp_path / "a.example-1-x").exists()
    assert gathered.readings().counts["hawser_lost_leases_total"] == {(): 2}


def status_server(folder: Path, maintenance: object = None) -> StatusServer:
    return StatusServer(Gathered(folder), Meter(), {}, 4, lambda: cast("Any", maintenance))


async def test_a_worker_is_ready_while_the_store_answers(tmp_path: Path):
    assert (await status_server(tmp_path).readyz()).status == 503
    maintenance = SimpleNamespace(heard_at=time.monotonic(), extender=SimpleNamespace(extensions=3))
    assert (await status_server(tmp_path, maintenance).readyz()).status == 200
    maintenance.heard_at -= AWAY_FOR + 1
    away = await status_server(tmp_path, maintenance).readyz()
    assert (away.status, away.body) == (503, b"the store has been away for 11 s\n")
    shown = (await status_server(tmp_path, maintenance).metrics()).body.decode()
    assert (total(shown, "hawser_extended_total"), total(shown, "hawser_store_up")) == (3, 0)
    maintenance.heard_at += AWAY_FOR
    assert total((await status_server(tmp_path, maintenance).metrics()).body.decode(), "hawser_store_up") == 1


async def test_log_lines_that_were_dropped_are_counted(tmp_path: Path):
    """Those of the supervisor, and those of each process, in the file that it leaves."""
    handler = LineHandler(os.open(os.devnull, os.O_WRONLY))
    logging.getLogger().addHandler(handler)
    try:
        process_meter = ProcessMeter(MemoryStore(), Events(), str(tmp_path / "w1"))
        for handler.dropped in (3, 3, 7):
            await process_meter.write()
        shown = (await status_server(tmp_path).metrics()).body.decode()
    finally:
        logging.getLogger().removeHandler(handler)
    assert total(shown, "hawser_dropped_log_lines_total") == 7 + 7


async def test_pages_bear_with_anything():
    async def broken() -> Sheet:
        raise RuntimeError("no")

    async def fine() -> Sheet:
        return Sheet(200, b"hello")

    pages = Pages({"/fine": fine, "/broken": broken})
    port = await pages.start("127.0.0.1", 0)

    async def say(text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    assert (await say(b"GET /fine?x=1 HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nhello")
    assert b" 404 " in await say(b"GET /x HTTP/1.1\r\n\r\n")
    assert b" 405 " in await say(b"POST /fine HTTP/1.1\r\n\r\n")
    assert b" 405 " in await say(b"\r\n\r\n")
    assert b" 500 " in await say(b"GET /broken HTTP/1.1\r\n\r\n")
    assert await say(b"GET /fine") == b""
    assert await say(b"x" * 10_000 + b"\r\n\r\n") == b""
    with pytest.raises(ConfigError, match="metrics_port"):
        await Pages({}).start("127.0.0.1", port)
    await pages.stop()
