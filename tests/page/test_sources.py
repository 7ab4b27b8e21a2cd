"""The sources of the dashboard: their types, and the tests of their pure parts, by the programs of npm."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.docs.documents import ROOT


@pytest.mark.parametrize("script", ["check", "test"])
def test_types_and_pure_parts_hold(script: str):
    npm = shutil.which("npm")
    if npm is None and os.environ.get("HAWSER_PAGE") == "require":
        pytest.fail("there is no npm; install Node.js")
    if npm is None:
        pytest.skip("there is no npm: the types of the dashboard are not checked; install Node.js")
    ended = subprocess.run(
        [npm, "run", "--silent", script], cwd=ROOT / "ui", capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
