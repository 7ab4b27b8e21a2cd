"""The OpenAPI document: complete, and true of the running server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from hawser import Hawser
from hawser.api.openapi import document
from hawser.api.route import Table
from hawser.api.routes import ROUTES
from tests.api.conftest import make_app, new_store
from tests.api.processes import threaded

WITHOUT = (
    # What a task takes, what an outcome takes and a dry run's token are rules beyond JSON Schema; and 5.0 is no int here.
    "positive_data_acceptance",
    # Callers on this machine may leave the key out.
    "ignored_auth",
)


TASKS = ["anything", "charge", "send_email"]


def test_every_route_is_in_the_document_and_nothing_else():
    paths = document(Table(ROUTES), TASKS)["paths"]
    assert {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods} == {
        route.name for route in ROUTES
    }
    assert all(operation["summary"].endswith(".") for methods in paths.values() for operation in methods.values())


def test_the_tasks_that_may_be_enqueued_are_those_of_the_app():
    job = document(Table(ROUTES), TASKS)["components"]["schemas"]["JobIn"]
    assert job["properties"]["task"]["enum"] == TASKS
    assert job["additionalProperties"] is False


async def test_a_task_that_is_registered_later_is_in_the_document(client: httpx.AsyncClient, app: Hawser):
    app.task(name="later")(lambda: None)
    shown = (await client.get("/openapi.json")).json()
    assert shown["components"]["schemas"]["JobIn"]["properties"]["task"]["enum"] == sorted([*TASKS, "later"])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_server_does_what_the_document_says(tmp_path: Path, kind: str):
    """Schemathesis, all checks but those above: no server error, no status that is not in the document."""
    api = make_app(asyncio.run(new_store(kind, tmp_path))).asgi(max_wait=0.01)
    with threaded(api) as url:
        program = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json"]
        options = ["--checks", "all", "--exclude-checks", ",".join(WITHOUT), "--exclude-path", "/events"]
        bounds = ["--max-examples", "10", "--seed", "1", "--suppress-health-check", "all", "--no-color"]
        run = subprocess.run(
            [*program, *options, *bounds], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
        assert httpx.get(f"{url}/healthz").status_code == 200
