"""Readiness of a server whose store answers reads and takes no writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hawser.api import readiness
from hawser.api.readiness import WRITE_PROVES_FOR_S, Readiness
from hawser.errors import StoreUnavailable
from hawser.stores.memory import MemoryStore
from hawser.stores.sqlite import SqliteStore
from hawser.testing import Fault, FaultyStore
from tests.api.conftest import client_of, make_app
from tests.api.test_metrics import samples
from tests.worker.processes import held


class Seconds:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_server_whose_store_takes_no_writes_says_so_and_says_when_it_does_again(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(readiness, "STORE_ANSWERS_WITHIN_S", 0.3)
    monkeypatch.setattr(readiness, "WRITE_PROVES_FOR_S", 0.0)
    store = SqliteStore(tmp_path / "jobs.db", timeout=20)
    async with client_of(make_app(store).asgi(open=True, upkeep=False)) as client:
        assert (await client.get("/readyz")).status_code == 200
        with held(tmp_path / "jobs.db"):
            unready = await client.get("/readyz")
            assert (unready.status_code, unready.json()["detail"]) == (503, "the store answers, but takes no writes")
            await client.get("/readyz")
            found = samples((await client.get("/metrics")).text)
            assert found["hawser_store_up",] == 0
            assert ("hawser_workers",) in found, "what can be read is shown"
        async with asyncio.timeout(10):
            while (await client.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.02)
        assert samples((await client.get("/metrics")).text)["hawser_store_up",] == 1
    await store.close()


async def test_a_write_of_late_is_proof_enough():
    seconds, store = Seconds(), FaultyStore(MemoryStore())
    ready = Readiness(seconds)
    for _ in range(5):
        await ready.check(store)
    assert store.calls["beat"] == 1
    seconds.now += WRITE_PROVES_FOR_S
    ready.wrote()
    seconds.now += WRITE_PROVES_FOR_S / 2
    await ready.check(store)
    assert store.calls["beat"] == 1
    seconds.now += WRITE_PROVES_FOR_S
    store.next("beat", Fault.REFUSE)
    with pytest.raises(StoreUnavailable):
        await ready.check(store)
    await ready.check(store)


async def test_one_try_serves_all_who_ask_and_goes_on_when_they_give_up(monkeypatch):
    monkeypatch.setattr(readiness, "STORE_ANSWERS_WITHIN_S", 0.05)
    free = asyncio.Event()

    async def blocked(_: float) -> None:
        await free.wait()

    store = FaultyStore(MemoryStore(), sleep=blocked)
    store.next("beat", Fault.DELAY)
    ready = Readiness()
    tries = await asyncio.gather(*(ready.check(store) for _ in range(5)), return_exceptions=True)
    assert {type(each) for each in tries} == {TimeoutError}
    with pytest.raises(TimeoutError):
        await ready.check(store)
    assert store.calls["beat"] == 1
    free.set()
    await ready.check(store)
    assert store.calls["beat"] == 1
    await ready.stop()


async def test_a_server_that_stops_does_not_wait_for_a_store_that_is_blocked(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(readiness, "STORE_ANSWERS_WITHIN_S", 0.1)
    store = SqliteStore(tmp_path / "jobs.db", timeout=30)
    await store.open()
    api = make_app(store).asgi(open=True, upkeep=False)
    with held(tmp_path / "jobs.db"):
        async with client_of(api) as client:
            assert (await client.get("/readyz")).status_code == 503
        async with asyncio.timeout(10):
            await api.stop()
            await store.close()
