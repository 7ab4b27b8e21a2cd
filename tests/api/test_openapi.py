"""The OpenAPI document: complete, and true of the running server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from hawser import Every, Hawser
from hawser.api.openapi import document
from hawser.api.route import Table
from hawser.api.routes import ROUTES
from hawser.job import State, Waiting
from hawser.schedule.rule import text_of
from hawser.schedule.schedule import Definition, create
from hawser.store.api_key import Role
from tests.api.conftest import bearer, make_app, new_store
from tests.api.processes import ROOT, Served, threaded
from tests.repetition import over, times

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
    assert (job["required"], job["properties"]["task"]["enum"]) == (["task"], TASKS)
    assert list(job["x-payloads"]) == TASKS
    assert job["x-payloads"]["send_email"] == {
        "payload": {"$ref": "#/components/schemas/payload.send_email"},
        "required": ["payload"],
    }
    assert (mail["required"], mail["properties"].keys()) == (["to"], {"to", "template"})
    assert job["additionalProperties"] is False
    assert schemas["ScheduleIn"]["properties"]["task"]["enum"] == TASKS


def unions(schema: Any, where: str) -> Iterator[str]:
    """Where a choice between several schemas stands that has no name; null beside one is none."""
    match schema:
        case dict():
            for word in ("anyOf", "oneOf", "allOf", "not"):
                if word in schema and len([each for each in schema[word] if each != {"type": "null"}]) != 1:
                    yield f"{where}.{word}"
            for name, part in schema.items():
                yield from unions(part, f"{where}.{name}")
        case list():
            for number, part in enumerate(schema):
                yield from unions(part, f"{where}[{number}]")


def test_no_schema_is_a_union_without_a_name():
    """A program that writes clients made sixteen classes without types of a job to enqueue."""
    shown = described()
    bodies = shown["components"]["schemas"]
    named = {name for name, schema in bodies.items() if schema.keys() <= {"title", "oneOf", "discriminator"}}
    assert named == {
        *("CountedOrOperationView", "JobInKeyTtl", "JobLineKeyTtl", "JobViewKeyTtl", "PolicyInBackoff", "QueuePolicyBackoff"),
        *("ScheduleInRule", "SettlementsInSettlementsItem", "TicksInRule"),
    }
    assert all("$ref" in each or "type" in each for name in named for each in bodies[name]["oneOf"])
    ours = {name: schema for name, schema in bodies.items() if name not in named and not name.startswith("payload.")}
    assert list(unions(ours, "schemas")) == []
    assert list(unions(shown["paths"], "paths")) == []


def test_bodies_and_answers_are_named_schemas():
    for path, methods in described()["paths"].items():
        for method, operation in methods.items():
            said = [*operation["responses"].values(), *([operation["requestBody"]] if "requestBody" in operation else [])]
            for part in said:
                for media_type, content in part.get("content", {}).items():
                    if media_type.endswith(("/json", "+json")) and path != "/openapi.json":
                        assert content["schema"].keys() == {"$ref"}, f"{method} {path}"


def test_operations_have_names_and_tags():
    shown = described()
    operations = [operation for methods in shown["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(re.fullmatch("[a-z][a-z0-9_]*", operation["operationId"]) for operation in operations)
    used = {tag for operation in operations for tag in operation["tags"]}
    assert used == {tag["name"] for tag in shown["tags"]}
    assert [server["url"] for server in shown["servers"]] == ["./"]
    plain = [schema for schema in shown["components"]["schemas"].values() if "properties" in schema]
    untyped = [
        (schema.get("title"), name)
        for schema in plain
        for name, part in schema["properties"].items()
        if not part.keys() & {"type", "$ref", "anyOf"} and name not in ANY_JSON
    ]
    assert untyped == []


ANY_JSON = ("payload", "body", "value", "result", "progress", "rule", "values", "payload_schema")
"""Fields that hold JSON of somebody else's."""


@pytest.mark.parametrize("require_key", [True, False])
def test_the_document_says_whether_a_key_is_needed(require_key: bool):
    assert ({} in described(require_key=require_key)["security"]) is not require_key


def test_the_states_to_look_for_are_all_there_are():
    [state] = [each for each in described()["paths"]["/jobs"]["get"]["parameters"] if each["name"] == "state"]
    named = re.findall("[a-z]+", state["schema"]["pattern"])
    assert sorted(set(named)) == sorted([*State, *Waiting])


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


@pytest.mark.parametrize("kind", over(["postgres"], ["sqlite", "redis"]))
def test_the_server_does_what_the_document_says(tmp_path: Path, kind: str):
    """Schemathesis, all checks: no server error, no status that is not in the document, no key that need not be there."""
    app = make_app(asyncio.run(new_store(kind, tmp_path)))
    key = asyncio.run(_prepared(app, Role.ADMIN, rate=1e6))
    _compared(app, key, tmp_path)


def test_the_document_says_what_a_key_hears_whose_rate_is_met(tmp_path: Path):
    """Nearly every request of this producer is one too many."""
    app = make_app(asyncio.run(new_store("sqlite", tmp_path)))
    key = asyncio.run(_prepared(app, Role.PRODUCER, rate=0.1))
    told = _compared(app, key, tmp_path, "--checks", CONFORMS)
    assert re.search(r"\b429\b", told), told


SHORT_HEADS = """
import functools, hawser.api.serve as serve
serve.ConnectionLimits = functools.partial(serve.ConnectionLimits, head=260)
"""
"""So that some requests have too long a head, most of them for their address."""

CONFORMS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.parametrize("first", ["", SHORT_HEADS], ids=["as it is", "short heads"])
def test_the_server_with_its_limits_does_what_the_document_says(tmp_path: Path, first: str):
    """`hawser serve` itself, which refuses what comes too slowly or has too long a head before the API sees it."""
    app = make_app(asyncio.run(new_store("sqlite", tmp_path)))
    key = asyncio.run(_prepared(app, Role.ADMIN, rate=1e6))
    server = Served(tmp_path, "--require-key", store=app.config.store, first=first)
    some = "^/(jobs|dlq|stats|queues|me|schedules)$"  # what stands before the API is the same for all
    try:
        server.start()
        _run_against(server.url, key, tmp_path, "--checks", CONFORMS, "--include-path-regex", some)
        assert ("sent a head of more than" in server.told()) is bool(first)
    finally:
        server.end()


def _compared(app: Hawser, key: str, tmp_path: Path, *more: str) -> str:
    """Run schemathesis against the app in a server of its own; gives what it says."""
    with threaded(app.asgi(max_wait=0.01, require_key=True)) as url:
        return _run_against(url, key, tmp_path, *more)


def _run_against(url: str, key: str, tmp_path: Path, *more: str) -> str:
    config = str(Path(__file__).with_name("schemathesis.toml"))
    program = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", config]
    options = ["run", f"{url}/openapi.json", "--header", f"Authorization: {key}"]
    bounds = [*more, "--max-examples", str(times(3, 25)), "--seed", "1", "--suppress-health-check", "all", "--no-color"]
    run = subprocess.run(
        [*program, *options, *bounds],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.api.exact"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert httpx.get(f"{url}/healthz").status_code == 200
    return run.stdout


async def _prepared(app: Hawser, role: Role, rate: float) -> str:
    """A key; and a schedule."""
    store = await app.store()
    nightly = Definition(name="nightly", rule_text=text_of(Every(days=1)), task="charge")
    await store.fire([create(nightly, (await store.due_schedules(0)).now, declared=True)])
    header = await bearer(store, role, rate=rate)
    await app.aclose()
    return header["authorization"]
