"""The FastAPI, Flask and Starlette projects under examples/, each in a process of its own, with a real worker."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, snippets

EXAMPLES = Path(__file__).parents[2] / "examples"

FASTAPI = """
from fastapi.testclient import TestClient
import main
with TestClient(main.api) as client:
    first = client.post("/orders/17/receipt", params={"to": "ann@example.com"})
    assert first.status_code == 202, first.text
    id = first.json()["job"]
    assert client.post("/orders/17/receipt", params={"to": "ann@example.com"}).json()["job"] == id, "a key makes no second job"
    assert client.get(f"/jobs/{id}").json() == {"state": "ready", "result": None}
    assert client.get("/jobs/01a1e6ad-1bd8-7f9c-8edc-cfa6abeb53f5").status_code == 404
    assert client.get(f"/hawser/jobs/{id}").json()["task"] == "send_receipt"
    main.jobs.set_limit(queue="mail", max_depth=1)
    full = client.post("/orders/18/receipt", params={"to": "bob@example.com"})
    assert (full.status_code, full.headers["retry-after"]) == (429, "5"), full.text
    wrong = client.post("/orders/18/receipt", params={"to": "\\x01" * 15_000})
    assert (wrong.status_code, "retry-after" in wrong.headers) == (422, False), wrong.text
    assert "payload" in wrong.json()["detail"]
with TestClient(main.api) as client:
    main.jobs.use_store("postgresql://127.0.0.1:1/none")
    away = client.post("/orders/19/receipt", params={"to": "cid@example.com"})
    assert (away.status_code, away.headers["retry-after"]) == (503, "5"), away.text
"""

FLASK = """
import main
client = main.app.test_client()
first = client.post("/orders/17/receipt/ann@example.com")
assert first.status_code == 202, first.text
id = first.json["job"]
assert client.get(f"/jobs/{id}").json == {"state": "ready", "result": None}
assert client.get("/jobs/01a1e6ad-1bd8-7f9c-8edc-cfa6abeb53f5").status_code == 404
main.jobs.set_limit(queue="mail", max_depth=1)
full = client.post("/orders/18/receipt/bob@example.com")
assert (full.status_code, full.headers["retry-after"]) == (429, "5"), full.text
wrong = client.post("/orders/18/receipt/" + "x" * 70_000)
assert (wrong.status_code, "payload" in wrong.json["detail"], "retry-after" in wrong.headers) == (422, True, False), wrong.text
main.jobs.close()
main.jobs.use_store("postgresql://127.0.0.1:1/none")
away = client.post("/orders/19/receipt/cid@example.com")
assert (away.status_code, away.headers["retry-after"]) == (503, "5"), away.text
"""

STARLETTE = """
import time
from starlette.testclient import TestClient
import main
with TestClient(main.app) as client:
    id = client.post("/images/cat.png").json()["job"]
    end = time.monotonic() + 20
    while (job := client.get(f"/hawser/jobs/{id}").json())["state"] != "done":
        assert time.monotonic() < end, job
        time.sleep(0.02)
    assert job["result"] == "cat.png is small"
"""


@pytest.mark.parametrize("name", ["fastapi", "flask", "starlette"])
def test_the_page_of_a_framework_has_the_example_whole(name: str):
    [shown] = [snippet for snippet in snippets(ROOT / "docs" / "guides" / f"{name}.md", "python") if snippet.file == "main.py"]
    assert shown.text == "# main.py\n" + (EXAMPLES / name / "main.py").read_text(encoding="utf-8")


def test_the_page_of_django_has_settings_and_tasks_of_the_example():
    shop = EXAMPLES / "django" / "shop"
    settings, tasks = (snippet.text for snippet in snippets(ROOT / "docs" / "guides" / "django.md", "py"))
    assert (shop / "settings.py").read_text(encoding="utf-8").endswith(settings)
    assert tasks == (shop / "tasks.py").read_text(encoding="utf-8")


def run(folder: Path, data: Path, *words: str) -> str:
    environ = {**os.environ, "SHOP_JOBS": f"sqlite:///{data}/jobs.db"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(("name", "script"), [("fastapi", FASTAPI), ("flask", FLASK)])
def test_a_web_app_enqueues_and_a_worker_runs(name: str, script: str, tmp_path: Path):
    folder = EXAMPLES / name
    run(folder, tmp_path, "-c", textwrap.dedent(script))
    run(folder, tmp_path, "-m", "hawser.cli", "worker", "main:jobs", "--queues", "mail", "--burst")
    look = "import main; [job] = main.jobs.find().jobs; print(job.result)"
    assert run(folder, tmp_path, "-c", look).strip() == "receipt of order 17 to ann@example.com"


def test_a_service_of_one_process_runs_its_own_jobs(tmp_path: Path):
    run(EXAMPLES / "starlette", tmp_path, "-c", STARLETTE)
