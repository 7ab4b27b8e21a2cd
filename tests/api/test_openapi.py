"""The OpenAPI document: complete, and true of the running server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from hawser import Every, Hawser
from hawser.access import Role
from hawser.api.openapi import document
from hawser.api.route import Table
from hawser.api.routes import ROUTES
from hawser.job import State, Waiting
from hawser.rule import text_of
from hawser.schedule import Definition, create
from tests.api.conftest import bearer, make_app, new_store
from tests.api.processes import ROOT, threaded

TASKS = ["anything", "charge", "send_email"]


def described(**options: Any) -> dict[str, Any]:
    tasks = make_app("memory://").tasks
    return document(Table(ROUTES), {name: tasks[name].parameters.schema() for name in TASKS}, **options)


def test_every_route_is_in_the_document_and_nothing_else():
    paths = described()["paths"]
    assert {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} == {
        route.name for route in ROUTES
    }
    assert all(operation["summary"].endswith(".") for methods in paths.values() for operation in methods.values())


def test_the_tasks_that_may_be_enqueued_are_those_of_the_app_with_what_they_take():
    schemas = described()["components"]["schemas"]
    job, mail = schemas["JobIn"], schemas["payload.send_email"]
    assert [each["properties"]["task"]["const"] for each in job["oneOf"] if "task" in each["properties"]] == TASKS
    assert [each["required"] for each in job["oneOf"][-2:]] == [["task", "payload"], ["type", "payload"]]
    assert (mail["required"], mail["properties"].keys()) == (["to"], {"to", "template"})
    assert job["additionalProperties"] is False
    assert [each["properties"]["task"]["const"] for each in schemas["ScheduleIn"]["oneOf"]] == TASKS


@pytest.mark.parametrize("require_key", [True, False])
def test_the_document_says_whether_a_key_is_needed(require_key: bool):
    assert ({} in described(require_key=require_key)["security"]) is not require_key


def test_the_states_to_look_for_are_all_there_are():
    [state] = [each for each in described()["paths"]["/jobs"]["get"]["parameters"] if each["name"] == "state"]
    assert sorted(state["schema"]["anyOf"][0]["enum"]) == sorted([*State, *Waiting])


async def test_a_task_that_is_registered_later_is_in_the_document(client: httpx.AsyncClient, app: Hawser):
    assert "payload.later" not in (await client.get("/openapi.json")).json()["components"]["schemas"]
    app.task(name="later")(lambda: None)
    assert "payload.later" in (await client.get("/openapi.json")).json()["components"]["schemas"]


class Address(msgspec.Struct):
    street: str
    behind: Address | None = None


async def test_every_reference_leads_somewhere(client: httpx.AsyncClient, app: Hawser):
    @app.task
    def ship(to: Address, also: list[Address]) -> None: ...

    shown = (await client.get("/openapi.json")).json()
    found = set(re.findall(r'"\$ref": ?"#/([^"]+)"', msgspec.json.encode(shown).decode()))
    assert "components/schemas/payload.ship/$defs/Address" in found
    for reference in found:
        part = shown
        for step in reference.split("/"):
            part = part[step]
    [task] = [task for task in (await client.get("/tasks")).json()["tasks"] if task["task"] == "ship"]
    assert task["payload_schema"]["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert task["payload_schema"]["$defs"]["Address"]["required"] == ["street"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_server_does_what_the_document_says(tmp_path: Path, kind: str):
    """Schemathesis, all checks: no server error, no status that is not in the document, no key that need not be there."""
    app = make_app(asyncio.run(new_store(kind, tmp_path)))
    key = asyncio.run(_prepared(app))
    with threaded(app.asgi(max_wait=0.01, require_key=True)) as url:
        config = str(Path(__file__).with_name("schemathesis.toml"))
        program = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", config]
        options = ["run", f"{url}/openapi.json", "--header", f"Authorization: {key}"]
        bounds = ["--max-examples", "10", "--seed", "1", "--suppress-health-check", "all", "--no-color"]
        run = subprocess.run(
            [*program, *options, *bounds],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.api.whole_numbers"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
        assert httpx.get(f"{url}/healthz").status_code == 200


async def _prepared(app: Hawser) -> str:
    """A key that may everything; and a schedule."""
    store = await app.store()
    nightly = Definition(name="nightly", rule_text=text_of(Every(days=1)), task="charge")
    await store.fire([create(nightly, (await store.due_schedules(0)).now, declared=True)])
    header = await bearer(store, Role.ADMIN, rate=1e6)
    await app.aclose()
    return header["authorization"]
