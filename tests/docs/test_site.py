"""The documentation site: built without warnings, every public name in it, and nothing fetched from elsewhere."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser

import hawser
import hawser.testing
from hawser.store import Store
from hawser.testing import FaultyStore
from tests.docs.documents import ROOT
from tests.page.conftest import browser

__all__ = ["browser"]  # the fixture


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return folder


def test_every_public_name_is_in_the_reference(site: Path):
    page = (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    assert [name for name in hawser.__all__ if not re.search(rf'id="hawser\.[\w.]+\.{name}"', page)] == []


FROM_TESTING = ["AppUnderTest", "Drained", "Fault", "FaultyStore", "ManualClock"]


def test_every_public_member_is_in_the_reference(site: Path):
    page = (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    there = set(re.findall(r'id="(hawser\.[\w.]+)"', page))
    short = {".".join(each.split(".")[-2:]) for each in there}
    assert [f"{owner}.{member}" for owner, member, _ in members() if f"{owner}.{member}" not in short] == []
    assert [name for name in FROM_TESTING if not any(each.endswith(f".{name}") for each in there)] == []


def test_every_public_member_has_a_docstring():
    assert [f"{owner}.{member}" for owner, member, function in members() if not getattr(function, "__doc__", None)] == []
    assert sorted(hawser.testing.__all__) == FROM_TESTING


def members() -> Iterator[tuple[str, str, object]]:
    """The methods and properties of what is public. The methods of a store are private, those of its double as well."""
    public = [getattr(hawser, name) for name in hawser.__all__] + [getattr(hawser.testing, name) for name in FROM_TESTING]
    for kind in public:
        own: list[tuple[str, Any]] = list(vars(kind).items()) if inspect.isclass(kind) else []
        if kind is hawser.Hawser:  # its operator's side stands in classes of its own
            own = inspect.getmembers(kind)
        for name, member in own:
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if not name.startswith("_") and inspect.isfunction(function) and not (kind is FaultyStore and hasattr(Store, name)):
                yield kind.__name__, name, function


def test_every_command_is_in_the_reference(site: Path):
    page = (site / "reference" / "cli" / "index.html").read_text(encoding="utf-8")
    for command in ("worker", "serve", "doctor", "dlq replay", "schedules ls"):
        assert f"hawser {command}" in page


def test_search_finds_pages_and_nothing_is_fetched_from_elsewhere(site: Path):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert len({entry["location"].partition("#")[0] for entry in index["docs"]}) > 30
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+"', text) == [], page


def test_versions_stand_side_by_side_with_a_selector(site: Path, tmp_path: Path, browser: Browser):
    for version in ("0.1.0", "0.10.0", "0.9.2"):
        shutil.copytree(site, tmp_path / version)
    (tmp_path / "images").mkdir()
    subprocess.run([sys.executable, str(ROOT / "script" / "docs_versions.py"), str(tmp_path)], timeout=60, check=True)
    with served(tmp_path) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_url(f"{address}/0.10.0/start/")
        assert hawser.__version__ in page.locator(".md-copyright").inner_text()
        offered = page.locator(".md-version__link")
        offered.first.wait_for(state="attached")
        assert offered.all_text_contents() == ["0.10.0", "0.9.2", "0.1.0"]
        page.goto(f"{address}/0.9.2/")
        page.wait_for_url(f"{address}/0.9.2/start/")
        page.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
