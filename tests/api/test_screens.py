"""What single screens ask for: what waited over time, marks, the system, changes of many."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import httpx
from msgspec.structs import replace

from hawser import Hawser
from hawser.api.series import at_ends, waiting_of
from hawser.clock import at
from hawser.job import State
from hawser.store import Beat, Store
from hawser.store.api_key import Role
from hawser.store.rollup import Rollup
from hawser.stores.memory import MemoryStore
from hawser.stores.schema import migrations_in
from hawser.testing.clock import ManualClock
from tests.api.conftest import bearer, client_of, fields, in_state, make_app

BEAT = Beat(worker="w1", host="vm1", pid=7, version="1.0", queues=("mail",), slots=4, running=0)


def rollup(minute: int, **counts: int) -> Rollup:
    return Rollup(minute=at(minute * 60_000_000), counts=counts, wait=(), run=())


def test_what_waited_is_reckoned_back_from_now():
    rollups = [rollup(0, enqueued=10), rollup(1, claimed=4, failed=1), rollup(2, enqueued=2, claimed=5, failed=2, dead=1)]
    # Now 5 wait: before the last minute 2 + 2 - 5 - 1 had come and gone, and before that 1 - 4.
    assert waiting_of(rollups, 5) == [10, 7, 5]
    assert waiting_of([rollup(0), rollup(1, enqueued=9)], 5) == [0, 5], "never fewer than none"
    assert [at_ends([1, 2, 3, 4, 5], step) for step in (1, 2, 5, 8)] == [[1, 2, 3, 4, 5], [2, 4, 5], [5], [5]]


async def test_the_overview_tells_what_waits(app: Hawser, store: Store, client: httpx.AsyncClient):
    await in_state(app, State.READY)
    series = (await client.get("/overview?minutes=15")).json()["series"]
    assert (series["waiting"][0], series["waiting"][-1]) == (0, 1)


async def test_a_new_version_of_hawser_and_a_lost_worker_are_marks(store: Store, client: httpx.AsyncClient, clock: ManualClock):
    await store.beat([BEAT])
    clock.advance(120)
    await store.beat([replace(BEAT, worker="w2", version="1.1")])
    marks = (await client.get("/overview?minutes=60")).json()["marks"]
    told = {mark["action"]: (mark["target"], mark["at"]) for mark in marks}
    assert told["upgrade"][0] == "Hawser 1.1"
    assert told["lost"][0] == "worker:w1"
    lost_at = at(clock.now()) - timedelta(seconds=120)
    assert told["lost"][1].startswith(lost_at.strftime("%Y-%m-%dT%H:%M"))


async def test_the_system_is_told_and_keys_only_to_operators(app: Hawser, store: Store):
    api = app.asgi(upkeep=False)
    viewer, operator = await bearer(store, Role.VIEWER), await bearer(store, Role.OPERATOR)
    async with client_of(api, "10.0.0.1") as client:
        seen = (await client.get("/system", headers=viewer)).json()
        assert (seen["keys"], seen["max_payload"], seen["retention"]["dead"]) == (None, 65_536, 30 * 86_400)
        assert seen["read_ms"] >= 0
        keys = (await client.get("/system", headers=operator)).json()["keys"]
        assert [key["roles"] for key in keys] in ([["operator"], ["viewer"]], [["viewer"], ["operator"]])
        assert "hash" not in str(keys)
    await api.stop()


async def test_the_store_is_told_with_its_schema_its_sizes_and_its_clock(tmp_path: Path):
    app = Hawser(f"sqlite:///{tmp_path}/jobs.db")
    api = app.asgi(open=True, upkeep=False)
    async with client_of(api) as client:
        seen = (await client.get("/system")).json()
    await api.stop()
    assert seen["schema"] == migrations_in("hawser.stores.sqlite")[-1].version
    assert seen["sizes"].keys() == {"file", "log"}
    assert seen["sizes"]["file"] >= 4096 < seen["sizes"]["log"], "both have pages: what was written goes through the log"
    assert abs(seen["clock_skew_s"]) < 1


async def test_a_clock_of_the_store_that_goes_before_is_told(clock: ManualClock):
    store = MemoryStore(clock=clock)
    api = make_app(store, ManualClock(at(clock.now() - 5_000_000))).asgi(open=True, upkeep=False)
    async with client_of(api) as client:
        seen = (await client.get("/system")).json()
    await api.stop()
    assert (seen["clock_skew_s"], seen["sizes"]) == (5.0, {})


async def test_waiting_jobs_are_changed_together(app: Hawser, store: Store, client: httpx.AsyncClient):
    ids = [(await app.aenqueue("anything", {})).id for _ in range(3)]
    dead = await in_state(app, State.DEAD)
    body = {"action": "change", "ids": [*ids, dead], "queue": "slow", "priority": 1, "reason": "later will do"}
    answer = await client.post("/jobs/selected", json=body)
    assert answer.json() == {"done": 3, "asked": 0, "skipped": 1}
    found = [await store.get(id) for id in ids]
    assert {(job.queue, job.priority) for job in found if job is not None} == {("slow", 1)}
    assert fields(await client.post("/jobs/selected", json={"action": "change", "ids": ids})) == ["queue"]
    [record] = await store.audit(1)
    assert (record.count, record.reason) == (3, "later will do")


async def test_only_queues_of_the_key_are_changed_to(app: Hawser, store: Store):
    api = app.asgi(upkeep=False)
    id = (await app.aenqueue("anything", {})).id
    held = await bearer(store, Role.OPERATOR, queues=("mail",))
    async with client_of(api, "10.0.0.1") as client:
        answer = await client.post("/jobs/selected", json={"action": "change", "ids": [id], "queue": "slow"}, headers=held)
    assert answer.status_code == 403
    await api.stop()
