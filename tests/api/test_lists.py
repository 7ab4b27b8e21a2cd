"""Lists as a page asks for them again and again: brief, compressed, and honest about what was searched."""

from __future__ import annotations

import gzip
from typing import Any

import httpx
import pytest

from hawser import Hawser, State
from hawser.api import encoding
from hawser.api.encoding import takes_gzip
from hawser.outcome import Done
from hawser.store import LeaseRef, Settlement, Share, Store
from hawser.stores.postgres import queries as postgres_queries
from hawser.stores.postgres import search as postgres_search
from hawser.stores.sqlite import queries as sqlite_queries
from hawser.stores.sqlite import search as sqlite_search
from hawser.testing.clock import ManualClock
from tests.api.conftest import fields, in_state


async def test_a_brief_list_has_no_payloads_and_says_so(client: httpx.AsyncClient, app: Hawser, store: Store):
    text = "x" * 60_000
    await app.aenqueue("anything", {"text": text})
    [claimed] = await store.claim([Share("default")], 1, "w", 60)
    await store.extend("w", [LeaseRef(claimed.id, claimed.lease, b'"' + b"p" * 500 + b'"')], 60)
    await store.settle([Settlement(claimed.id, claimed.lease, Done(b'"%s"' % text.encode()))])
    whole = await client.get("/jobs")
    [job] = whole.json()["jobs"]
    assert (job["payload"]["text"], job["result"], whole.json()["left_out"]) == (text, text, [])
    brief = await client.get("/jobs?brief=1")
    [line] = brief.json()["jobs"]
    assert not line.keys() & {"payload", "result", "progress"}
    assert (line["payload_size"], line["result_size"]) == (len(text) + 11, len(text) + 2)
    assert brief.json()["left_out"] == ["payload", "result", "progress", "error"]
    assert {name: job[name] for name in line if name != "error"} == {name: line[name] for name in line if name != "error"}
    assert len(brief.content) < 1_500
    assert fields(await client.get("/jobs?brief=2")) == ["brief"]


async def test_a_brief_list_of_dead_jobs_has_the_beginning_of_their_errors(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.DEAD, error="E" * 5_000)
    [line] = (await client.get("/dlq?brief=1")).json()["jobs"]
    assert line["error"] == "E" * 200 + "…"
    [job] = (await client.get("/dlq")).json()["jobs"]
    assert job["error"] == "E" * 5_000


async def test_a_large_answer_is_compressed_for_those_who_can_read_it(client: httpx.AsyncClient, app: Hawser):
    await app.aenqueue("anything", {"text": "x" * 5_000})
    plain = await client.get("/jobs", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == "accept-encoding"
    small = await client.get("/jobs", headers={"accept-encoding": "br, gzip;q=0.5"})
    assert small.headers["content-encoding"] == "gzip"
    assert int(small.headers["content-length"]) < len(plain.content) / 5
    assert small.json() == plain.json()
    tag = small.headers["etag"]
    assert tag == f"W/{plain.headers['etag']}"
    for known in (tag, plain.headers["etag"]):
        same = await client.get("/jobs", headers={"if-none-match": known})
        assert (same.status_code, same.content) == (304, b"")


async def test_a_small_answer_is_sent_as_it_is(client: httpx.AsyncClient):
    answer = await client.get("/jobs", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers
    made = await client.post("/jobs", json={"task": "anything"}, headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in made.headers


async def test_a_very_large_answer_is_compressed_aside(client: httpx.AsyncClient, app: Hawser, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encoding, "_ASIDE", 100)
    await app.aenqueue("anything", {"text": "x" * 5_000})
    assert len((await client.get("/jobs")).json()["jobs"]) == 1


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        (b"gzip", True),
        (b"deflate, GZIP ; q=1.0, *;q=0.5", True),
        (b"*", True),
        (b"", False),
        (b"br", False),
        (b"gzip;q=0", False),
        (b"gzip; q=0.000, *", False),
        (b"*;q=0", False),
        (b"xgzip", False),
    ],
)
def test_what_a_caller_takes(accepted: bytes, taken: bool):
    assert takes_gzip(accepted) is taken


async def test_what_is_compressed_is_gzip():
    assert gzip.decompress(await encoding.squeezed(b"abc" * 1_000)) == b"abc" * 1_000


async def test_a_search_says_how_far_it_came(
    client: httpx.AsyncClient, app: Hawser, store: Store, monkeypatch: pytest.MonkeyPatch
):
    """A filter that matches nothing was answered with nothing but a `next`, again and again."""
    ids = [(await app.aenqueue("anything")).id for _ in range(7)]

    find: Any = store.find

    async def short(filter: Any, after: str | None, limit: int) -> Any:
        """As if each look were bounded by three jobs."""
        behind = sorted((id for id in ids if after is None or id < after), reverse=True)
        page = await find(filter, after, limit)
        return type(page)([], behind[2], 3) if len(behind) > 3 else type(page)([], None, len(behind))

    monkeypatch.setattr(store, "find", short)
    monkeypatch.setattr("hawser.api.listing.SEARCH_FOR_S", 0.0)
    first = (await client.get("/jobs?tag=none")).json()
    assert (first["jobs"], first["searched"], first["next"]) == ([], 3, sorted(ids)[-3])
    assert first["searched_to"] is not None
    monkeypatch.setattr("hawser.api.listing.SEARCH_FOR_S", 10.0)
    whole = (await client.get("/jobs?tag=none")).json()
    assert (whole["jobs"], whole["searched"], whole["next"], whole["searched_to"]) == ([], 7, None, None)


async def test_a_filter_that_matches_nothing_is_answered_at_once(
    client: httpx.AsyncClient, app: Hawser, monkeypatch: pytest.MonkeyPatch
):
    for module in (sqlite_queries, postgres_queries, postgres_search):
        monkeypatch.setattr(module, "SCAN", 1)  # what looks at the jobs themselves ends behind the first, with a `next`
    for module in (sqlite_queries, postgres_queries):
        monkeypatch.setattr(module, "LOOK_FOR", 0.0)
    monkeypatch.setattr(sqlite_search, "SORTED_UP_TO", 0)  # three jobs are not few
    monkeypatch.setattr("hawser.api.listing.SEARCH_FOR_S", 0.0)
    for _ in range(3):
        await app.aenqueue("anything")
    for query in ("queue=none", "task=none&state=done", "state=dead&task=anything", "key=none", "tag=none"):
        page = (await client.get(f"/jobs?{query}")).json()
        assert (page["jobs"], page["next"]) == ([], None)


async def test_jobs_are_found_by_an_argument_that_a_task_declares(client: httpx.AsyncClient, app: Hawser):
    dead = await in_state(app, State.DEAD)
    wanted = await app.aenqueue("send_email", {"to": "ann", "template": "a b"})
    await app.aenqueue("send_email", {"to": "bob"})
    for query in ("arg.template=a%20b", "argument=template%3Da%20b", "arg.template=a+b&task=send_email&state=ready"):
        [job] = (await client.get(f"/jobs?{query}")).json()["jobs"]
        assert (job["id"], job["index"]) == (wanted.id, ["template=a b"])
    for path in ("/jobs?arg.to=x", "/jobs/export.csv?arg.to=x", "/dlq?arg.to=x", "/jobs?argument=template"):
        assert fields(await client.get(path)) == ["argument"]
    assert fields(await client.get("/jobs?arg.template=a&arg.template=b")) == ["argument"]
    assert fields(await client.get("/schedules?arg.to=a")) == ["arg.to"]
    [line] = (await client.get("/jobs/export.ndjson?arg.template=a%20b")).text.splitlines()
    assert wanted.id in line
    [letter] = (await client.get("/dlq")).json()["jobs"]
    entry = letter["index"][0]
    counted = (await client.post("/dlq/requeue", json={"filter": {"argument": entry}, "dry_run": True})).json()
    assert (letter["id"], counted["count"]) == (dead, 1)
    refused = await client.post("/dlq/requeue", json={"filter": {"argument": "to=x"}, "dry_run": True})
    assert fields(refused) == ["argument"]
    tasks = (await client.get("/tasks")).json()["tasks"]
    assert {task["task"]: task["index"] for task in tasks} == {"anything": [], "charge": [], "send_email": ["template"]}


async def test_a_number_below_its_range_is_told_the_range(client: httpx.AsyncClient, app: Hawser):
    id = (await app.aenqueue("anything")).id
    for path, field, least in (("/jobs?limit=-1", "limit", 1), (f"/jobs/{id}?wait=-1", "wait", 0)):
        answer = await client.get(path)
        assert (answer.status_code, fields(answer)) == (400, [field])
        assert answer.json()["detail"] == f"{field}: Expected `int` >= {least}"


async def test_jobs_that_run_for_longest_come_first(client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock):
    """The job that was enqueued first starts last."""
    first, second, third = [(await app.aenqueue("anything", {}, priority=number)).id for number in range(3)]
    for _ in range(3):
        await store.claim([Share("default")], 1, "w1", 600.0)
        clock.advance(5)

    async def listed(**query: str | int) -> list[str]:
        answer = await client.get("/jobs", params={"state": "running", "sort": "started", **query})
        return [job["id"] for job in answer.json()["jobs"]]

    assert await listed() == [third, second, first]
    assert await listed(limit=1) == [third]
    assert await listed(limit=2, worker="w1") == [third, second]
    assert await listed(queue="mail") == []
    for wrong in ({"state": "done"}, {"after": first}, {"newer": first}, {"state": "running,done"}):
        answer = await client.get("/jobs", params={"state": "running", "sort": "started", **wrong})
        assert fields(answer) == ["sort"]
