"""The documentation site: built without warnings, every public name in it, and nothing fetched from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hawser
from tests.docs.documents import ROOT


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
