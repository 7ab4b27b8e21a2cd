"""`/dlq/groups`: dead letters by task and kind of error."""

from __future__ import annotations

import time

import httpx
import pytest

from hawser import Hawser, State
from hawser.clock import at
from hawser.store import ERROR_TOLD, Store
from hawser.testing.clock import ManualClock
from hawser.value.fingerprint import NO_ERROR_TOLD, fingerprint, pattern
from tests.api.conftest import fields, in_state


async def test_dead_jobs_of_one_cause_are_one_group(client: httpx.AsyncClient, app: Hawser, clock: ManualClock):
    began = at(clock.now())
    for n in range(3):
        last = await in_state(app, State.DEAD, error=f"ValueError: no user {n} called 'ann{n}'")
        clock.advance(10)
    await in_state(app, State.DEAD, error="TimeoutError: down")
    await in_state(app, State.DEAD, "charge", error="TimeoutError: down")
    await in_state(app, State.READY)
    answer = (await client.get("/dlq/groups")).json()
    assert (answer["grouped"], answer["ungrouped"], answer["complete"]) == (5, 0, True)
    first, *rest = answer["groups"]
    assert (first["task"], first["fingerprint"], first["count"]) == ("send_email", "ValueError: no user # called '…'", 3)
    assert (first["sample_id"], first["sample_error"]) == (last, "ValueError: no user 2 called 'ann2'")
    assert first["first_at"].startswith(f"{began:%Y-%m-%dT%H:%M:%S}")
    assert [(group["task"], group["count"]) for group in rest] == [("charge", 1), ("send_email", 1)]
    only = (await client.get("/dlq/groups?task=charge&queue=default")).json()
    assert [group["count"] for group in only["groups"]] == [1]
    assert (await client.get("/dlq/groups?task=a%20b")).status_code == 400


async def test_a_group_is_listed_and_acted_on(client: httpx.AsyncClient, app: Hawser, store: Store):
    wanted = [await in_state(app, State.DEAD, error=f"ValueError: {n}") for n in range(3)]
    other = await in_state(app, State.DEAD, error="KeyError: 'x'")
    first, second = (await client.get("/dlq/groups")).json()["groups"]
    assert [job["id"] for job in (await client.get(f"/dlq?group={first['id']}")).json()["jobs"]] == wanted[::-1]
    filter = {"group": first["id"]}
    counted = (await client.post("/dlq/requeue", json={"filter": filter, "dry_run": True})).json()
    assert counted["count"] == 3
    done = (await client.post("/dlq/requeue", json={"filter": filter, "token": counted["token"]})).json()
    assert (done["state"], done["done"]) == ("done", 3)
    answer = (await client.get("/dlq/groups")).json()
    assert [group["id"] for group in answer["groups"]] == [second["id"]]
    filter = {"group": second["id"]}
    token = (await client.post("/dlq/discard", json={"filter": filter, "dry_run": True})).json()["token"]
    assert (await client.post("/dlq/discard", json={"filter": filter, "token": token})).json()["done"] == 1
    assert (await client.get("/dlq/groups")).json() == {"groups": [], "grouped": 0, "ungrouped": 0, "complete": True}
    assert (await app.aget(other)).state is State.CANCELLED
    assert fields(await client.get("/dlq?group=nonsense")) == ["group"]
    assert [job.id for job in (await app.afind(group=first["id"])).jobs] == []
    assert (await app.afind(group="nonsense")).jobs == []  # a group of jobs that has none


async def test_the_smaller_groups_may_be_left_out(client: httpx.AsyncClient, app: Hawser):
    for error in ("one", "two", "two"):
        await in_state(app, State.DEAD, error=error)
    answer = (await client.get("/dlq/groups?limit=1")).json()
    assert ([group["count"] for group in answer["groups"]], answer["grouped"], answer["complete"]) == ([2], 2, False)


async def test_whole_jobs_are_not_read_for_it(client: httpx.AsyncClient, app: Hawser, monkeypatch: pytest.MonkeyPatch):
    """With payloads, attempts and tracebacks five thousand of them took 170 MB."""
    await in_state(app, State.DEAD, error="x" * 9_000)

    async def refuse(*_: object) -> None:
        raise AssertionError("a whole job was read")

    store = await app._connection.ready()
    monkeypatch.setattr(store, "find", refuse)
    monkeypatch.setattr(store, "get", refuse)
    [group] = (await client.get("/dlq/groups")).json()["groups"]
    assert (group["fingerprint"], group["sample_error"]) == ("x" * 200, "x" * ERROR_TOLD)


@pytest.mark.parametrize(
    ("error", "known"),
    [
        ("KeyError: 'x-17'", "KeyError: '…'"),
        ("Error: <Foo object at 0x7ff12ab>\nmore", "Error: <Foo object at #>"),
        ("no job 01a1e2e7-ce8e-7ab3-a3ed-f3dc66179303 of ann@example.com", "no job # of …@…"),
        ("took 12.5 s of 10", "took #.# s of #"),
        ("", NO_ERROR_TOLD),
    ],
)
def test_what_differs_from_job_to_job_is_left_out(error: str, known: str):
    assert pattern(error) == known
    assert fingerprint(error) == fingerprint(known)


@pytest.mark.parametrize(
    "hostile", ["'" * 100_000, '"a' * 50_000, "@" * 100_000, "0x" * 50_000, "a" * 99_999 + "@", "1-" * 9_999]
)
def test_a_hostile_error_takes_no_time(hostile: str):
    began = time.perf_counter()
    assert len(pattern(hostile)) <= 400
    assert time.perf_counter() - began < 0.5


async def test_a_job_may_name_its_group(client: httpx.AsyncClient, app: Hawser):
    made = (await client.post("/jobs", json={"task": "send_email", "payload": {"to": "x"}, "group": "acme"})).json()
    assert (await client.get(f"/jobs/{made['id']}")).json()["group"] == "acme"
    assert [job["id"] for job in (await client.get("/jobs?group=acme")).json()["jobs"]] == [made["id"]]
    assert (await client.get("/jobs?group=other")).json()["jobs"] == []
    assert fields(await client.post("/jobs", json={"task": "send_email", "payload": {"to": "x"}, "group": "x" * 129})) == [
        "group"
    ]
    assert (await app.astats()).ready == 1


async def test_a_weight_is_set_and_checked(client: httpx.AsyncClient, app: Hawser):
    assert (await client.put("/queues/mail/groups/acme", json={"weight": 3})).json() == {"changed": True}
    assert [(each.queue, each.group, each.weight) for each in await app.aweights()] == [("mail", "acme", 3)]
    assert (await client.get("/queues/mail/groups")).json() == {"groups": [{"group": "acme", "weight": 3}]}
    assert (await client.get("/queues/default/groups")).json() == {"groups": []}
    assert fields(await client.put("/queues/mail/groups/acme", json={"weight": 0})) == ["weight"]
    assert fields(await client.put(f"/queues/mail/groups/{'x' * 129}", json={"weight": 2})) == ["group"]
