"""Debounced jobs, over HTTP."""

import httpx
import pytest

from tests.api.conftest import fields


async def test_calls_with_one_key_become_one_job(client: httpx.AsyncClient):
    asked = {"task": "job", "key": "reindex:42", "debounce": 60, "at_most": 600}
    first = await client.post("/jobs", json={**asked, "payload": {"n": 1}})
    assert (first.status_code, first.json()["created"], first.json()["replaced"]) == (201, True, False)
    second = await client.post("/jobs", json={**asked, "payload": {"n": 2}})
    assert (second.status_code, second.json()["created"], second.json()["replaced"]) == (200, False, True)
    assert second.json()["id"] == first.json()["id"]
    shown = (await client.get(f"/jobs/{first.json()['id']}")).json()
    assert shown["payload"] == {"n": 2}
    many = await client.post("/jobs/batch", json={"jobs": [{**asked, "payload": {"n": 3}}]})
    assert [(job["id"], job["created"], job["replaced"]) for job in many.json()["jobs"]] == [(shown["id"], False, True)]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"debounce": 5}, "debounce"),
        ({"key": "k", "debounce": 0}, "debounce"),
        ({"key": "k", "debounce": "soon"}, "debounce"),
        ({"key": "k", "at_most": 5}, "at_most"),
        ({"key": "k", "debounce": 5, "at_most": 1}, "at_most"),
        ({"key": "k", "debounce": 5, "delay": 1}, "delay"),
    ],
)
async def test_what_makes_no_sense_is_named(client: httpx.AsyncClient, given: dict[str, object], field: str):
    answer = await client.post("/jobs", json={"task": "job", "payload": {}, **given})
    assert answer.status_code == 400
    assert fields(answer) == [field]
