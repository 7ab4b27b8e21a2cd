"""The dashboard as it is served: paths, headers, prefixes, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from hawser.api.page import POLICY, Dashboard
from hawser.api.server import Api
from tests.api.conftest import client_of

INDEX = '<script src="%BASE%assets/app-1.js"></script>'
SCRIPT = "export const all = 1;" * 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A built dashboard, small."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "app-1.js").write_text(SCRIPT)
    (tmp_path / "index.html").write_text(INDEX)
    return tmp_path


@pytest.fixture(params=["memory"])
async def app(request, tmp_path, clock):
    from tests.api.conftest import make_app

    return make_app("memory://", clock)


@pytest.fixture
def page(api: Api, folder: Path) -> Api:
    api.dashboard = Dashboard(folder)
    return api


@pytest.mark.parametrize("path", ["/ui/", "/ui/jobs", "/ui/jobs/some/where", "/ui/queues/mail"])
async def test_every_screen_gets_the_index_with_a_way_to_its_files(page: Api, path: str):
    async with client_of(page) as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert answer.headers["cache-control"] == "no-cache"
        asset = httpx.URL(f"http://localhost{path}").join(answer.text.split('"')[1])
        assert asset.path == "/ui/assets/app-1.js"
        found = await client.get(asset)
        assert (found.status_code, found.text) == (200, SCRIPT)
        assert "immutable" in found.headers["cache-control"]
        assert found.headers["content-encoding"] == "gzip"


async def test_the_headers_keep_foreign_scripts_frames_and_hosts_out(page: Api):
    async with client_of(page) as client:
        for path in ("/ui/", "/ui/assets/app-1.js", "/ui/assets/none.js"):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"] == POLICY.decode()
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cross-origin-opener-policy"] == "same-origin"
    assert "'unsafe" not in POLICY.decode()
    assert "frame-ancestors 'none'" in POLICY.decode()
    assert "http" not in POLICY.decode()


async def test_a_file_that_is_not_there_is_not_the_index(page: Api):
    async with client_of(page) as client:
        answer = await client.get("/ui/assets/app-0.js")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")


async def test_an_index_that_the_browser_has_is_not_sent_again(page: Api):
    async with client_of(page) as client:
        tag = (await client.get("/ui/jobs")).headers["etag"]
        answer = await client.get("/ui/jobs", headers={"if-none-match": tag})
    assert (answer.status_code, answer.content) == (304, b"")


@pytest.mark.parametrize(
    ("path", "accept", "status"), [("/ui", "*/*", 307), ("/", "text/html", 307), ("/", "application/json", 404)]
)
async def test_a_browser_is_led_to_the_dashboard(page: Api, path: str, accept: str, status: int):
    async with client_of(page) as client:
        answer = await client.get(path, headers={"accept": accept})
    assert answer.status_code == status
    if status == 307:
        assert answer.headers["location"] == "./ui/"


async def test_under_a_prefix_it_needs_no_setting(page: Api):
    around = Starlette(routes=[Mount("/ops/hawser", page)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(around), base_url="http://localhost") as client:
        answer = await client.get("/ops/hawser/ui/jobs/x")
        asset = httpx.URL("http://localhost/ops/hawser/ui/jobs/x").join(answer.text.split('"')[1])
        assert asset.path == "/ops/hawser/ui/assets/app-1.js"
        assert (await client.get(asset)).text == SCRIPT
        assert (await client.get("/ops/hawser/ui", follow_redirects=True)).status_code == 200


@pytest.mark.parametrize("reason", ["npm could not fetch <packages>", None])
async def test_without_a_built_dashboard_it_says_why_and_the_api_works(api: Api, tmp_path: Path, reason: str | None):
    if reason is not None:
        (tmp_path / "missing.txt").write_text(reason)
    api.dashboard = Dashboard(tmp_path)
    async with client_of(api) as client:
        answer = await client.get("/ui/jobs")
        assert (answer.status_code, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert "npm could not fetch &lt;packages&gt;" in answer.text if reason else "was not built" in answer.text
        assert "install Hawser again" in answer.text
        assert (await client.get("/ui/assets/app-1.js")).status_code == 404
        assert (await client.get("/stats")).status_code == 200


async def test_the_page_asks_nobody_who_they_are(app, folder: Path):
    """It holds nothing but the program; what it shows comes from routes that ask."""
    api = app.asgi(require_key=True, upkeep=False)
    api.dashboard = Dashboard(folder)
    async with client_of(api) as client:
        assert (await client.get("/ui/")).status_code == 200
        assert (await client.get("/overview")).status_code == 401
        assert (await client.post("/ui/")).status_code == 404
    await api.stop()
