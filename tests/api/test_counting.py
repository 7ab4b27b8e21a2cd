"""Lists, counts and strips under a filter, each at a bounded cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from hawser import Hawser
from hawser.api import counting, listing
from hawser.clock import at
from hawser.outcome import Dead, Done, Failed, Failure
from hawser.store import Settlement, Share, Store
from hawser.testing.clock import ManualClock

FAILURE = Failure("ValueError: no", "Traceback")


async def fill(app: Hawser, store: Store) -> dict[str, str]:
    """One done, one dead, one that waits for another attempt, one that runs, two that wait; in another queue one that waits."""
    for number in range(6):
        await app.aenqueue("send_email", {"to": f"{number}"}, tags=["even"] if number % 2 == 0 else [])
    first, second, third = await store.claim([Share("mail")], 3, "w1", 60.0)
    [fourth] = await store.claim([Share("mail")], 1, "w2", 60.0)
    await store.settle(
        [
            Settlement(first.id, first.lease, Done()),
            Settlement(second.id, second.lease, Dead(FAILURE)),
            Settlement(third.id, third.lease, Failed(FAILURE, 300.0)),
        ]
    )
    await app.aenqueue("anything", {})
    return {"done": first.id, "dead": second.id, "retrying": third.id, "running": fourth.id}


async def ids(client: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await client.get("/jobs", params=query)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


async def test_several_states_are_one_list(app: Hawser, store: Store, client: httpx.AsyncClient):
    made = await fill(app, store)
    wanted = sorted((made["done"], made["dead"], made["running"]), reverse=True)
    assert await ids(client, state="done,dead,running") == wanted
    visited: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = (await client.get("/jobs", params={"state": "done,dead,running", "limit": 1, **after})).json()
        visited += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert visited == wanted
    assert (await client.get("/jobs", params={"state": "done,none"})).status_code == 400


async def test_pages_of_several_states_that_were_cut_short_go_on_to_the_end(
    app: Hawser, store: Store, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    made = await fill(app, store)
    monkeypatch.setattr(listing, "SEARCH_FOR_S", 0.0)
    monkeypatch.setattr(listing, "_JOBS_AT_ONCE", 1)
    visited: list[str] = []
    after: dict[str, str] = {}
    for _ in range(20):
        page = (await client.get("/jobs", params={"state": "done,dead,ready", "attempt_min": 1, **after})).json()
        visited += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert visited == sorted((made["done"], made["dead"], made["retrying"]), reverse=True)


async def test_jobs_are_found_by_worker_and_attempt(app: Hawser, store: Store, client: httpx.AsyncClient):
    made = await fill(app, store)
    assert await ids(client, state="running", worker="w2") == [made["running"]]
    assert await ids(client, state="running", worker="w1") == []
    assert await ids(client, state="ready", attempt_min=1) == [made["retrying"]]
    assert await ids(client, attempt_min=2) == []


async def test_what_came_since_is_asked_for(app: Hawser, store: Store, client: httpx.AsyncClient):
    await fill(app, store)
    newest = (await ids(client, limit=1))[0]
    assert await ids(client, newer=newest) == []
    added = [(await app.aenqueue("anything", {})).id for _ in range(3)]
    page = (await client.get("/jobs", params={"newer": newest})).json()
    assert [job["id"] for job in page["jobs"]] == added[::-1]
    assert page["next"] is None
    assert await ids(client, newer=newest, limit=2) == added[:0:-1]


async def counts(client: httpx.AsyncClient, **query: Any) -> Any:
    answer = await client.get("/jobs/counts", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_counts_are_exact_by_queue_and_task(app: Hawser, store: Store, client: httpx.AsyncClient):
    await fill(app, store)
    for query in ({}, {"queue": "mail"}, {"task": "send_email"}, {"task": "send_email", "queue": "mail"}):
        found = await counts(client, **query)
        assert found["complete"], query
        expected = {"ready": 3 if query else 4, "running": 1, "done": 1, "dead": 1, "cancelled": 0}
        assert {state: found["states"][state]["count"] for state in expected} == expected, query
        assert (found["total"], found["searched"]) == ({"count": 6 if query else 7, "exact": True}, 0)
    assert (await counts(client, queue="mail"))["states"]["retrying"]["count"] == 1
    found = await counts(client, task="send_email", state="dead,done")
    assert {state: each["count"] for state, each in found["states"].items()} == {"dead": 1, "done": 1}


async def test_counts_of_other_filters_say_how_far_they_looked(
    app: Hawser, store: Store, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    await fill(app, store)
    found = await counts(client, tag="even")
    assert {state: each["count"] for state, each in found["states"].items()} == {"done": 1, "ready": 2, "retrying": 1}
    assert (found["complete"], found["total"]) == (True, {"count": 3, "exact": True})
    monkeypatch.setattr(counting, "SEARCH_FOR_S", 0.0)
    monkeypatch.setattr(counting, "_COUNT_PAGE", 1)
    monkeypatch.setattr(listing, "SEARCH_FOR_S", 0.0)
    found = await counts(client, tag="even", queue="mail")
    assert (found["complete"], found["total"]["exact"], found["total"]["count"]) == (False, False, 1)
    assert found["searched"] >= 1


async def test_a_strip_tells_what_happened_when(app: Hawser, store: Store, client: httpx.AsyncClient, clock: ManualClock):
    await fill(app, store)
    clock.advance(120)
    await app.aenqueue("send_email", {"to": "later"}, tags=["even"])
    answer = await client.get("/jobs/strip", params={"task": "send_email", "minutes": 5, "steps": 5})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["source"], found["complete"], found["step_s"]) == ("history", True, 60.0)
    assert found["at"].startswith(at(clock.now()).strftime("%Y-%m-%dT%H:%M"))
    assert (sum(found["enqueued"]), found["enqueued"][-1]) == (7, 1)
    assert (sum(found["done"]), sum(found["failed"]), sum(found["dead"])) == (1, 2, 1)
    answer = await client.get("/jobs/strip", params={"tag": "even", "minutes": 5, "steps": 5})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["source"], found["complete"], sum(found["enqueued"]), sum(found["done"])) == ("jobs", True, 4, 1)
    since = at(clock.now()) - timedelta(days=3)
    found = (await client.get("/jobs/strip", params={"queue": "mail", "since": since.isoformat()})).json()
    assert found["complete"] is False


async def test_history_is_told_in_steps_and_between_instants(
    app: Hawser, store: Store, client: httpx.AsyncClient, clock: ManualClock
):
    await fill(app, store)
    clock.advance(600)
    now = at(clock.now())
    found = (await client.get("/history", params={"minutes": 20, "step": 10})).json()
    assert (len(found["minutes"]), found["step"], found["complete"]) == (2, 10, True)
    assert sum(each["counts"].get("enqueued", 0) for each in found["minutes"]) == 7
    since, until = (now - timedelta(minutes=12)).isoformat(), (now - timedelta(minutes=5)).isoformat()
    found = (await client.get("/history", params={"since": since, "until": until})).json()
    assert 6 <= len(found["minutes"]) <= 9
    assert sum(each["counts"].get("enqueued", 0) for each in found["minutes"]) == 7
    week = await client.get("/history", params={"minutes": 7 * 1440, "step": 60})
    assert (week.status_code, week.json()["complete"], len(week.json()["minutes"])) == (200, False, 24)
    long_ago = await client.get("/history", params={"since": (now - timedelta(days=9)).isoformat(), "step": 60})
    assert (long_ago.status_code, long_ago.json()["complete"], len(long_ago.json()["minutes"])) == (200, False, 24)


async def test_the_audit_is_asked_for_a_target_and_a_time(
    app: Hawser, store: Store, client: httpx.AsyncClient, clock: ManualClock
):
    first = await fill(app, store)
    await app.arequeue(first["dead"])
    await app.apause(queue="mail")
    clock.advance(100)
    await app.aresume(queue="mail")

    async def actions(**query: Any) -> list[str]:
        return [each["action"] for each in (await client.get("/audit", params=query)).json()["audit"]]

    assert await actions(target="queue:mail") == ["resume", "pause"]
    assert await actions(target=first["dead"]) == ["requeue"]
    assert await actions(target="queue:mail", limit=1) == ["resume"]
    assert await actions(since=(at(clock.now()) - timedelta(seconds=50)).isoformat()) == ["resume"]
