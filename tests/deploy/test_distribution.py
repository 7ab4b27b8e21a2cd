"""The distribution: an sdist and a wheel that work in an environment where nothing else is installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.docs.documents import ROOT

TRY = """
from hawser import Hawser, JobQueue
app = Hawser("sqlite:///jobs.db")
@app.task
def greet(name: str) -> None: ...
print(app.get(greet.enqueue("ann").id).state)
"""

PAGES = """
import hawser, pathlib
print(len([*pathlib.Path(hawser.__file__).parent.joinpath("dashboard").rglob("*.*")]))
"""
"""How many files of the dashboard are there."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    return folder


def run(*command: str, cwd: Path | None = None) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=cwd)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("ending", ["whl", "tar.gz"])
def test_it_works_in_an_empty_environment(built: Path, tmp_path: Path, ending: str):
    """pip makes a wheel of the sdist with what the sdist says that its build needs."""
    [distribution] = built.glob(f"hawser_jobs-*.{ending}")
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    bin = tmp_path / "venv" / "bin"
    run(str(bin / "pip"), "install", "--quiet", "--disable-pip-version-check", str(distribution))
    assert run(str(bin / "hawser"), "--version").startswith("hawser 0.")
    assert run(str(bin / "python"), "-c", TRY, cwd=tmp_path).strip() == "ready"
    assert int(run(str(bin / "python"), "-c", PAGES, cwd=tmp_path)) > 3
    assert "default" in run(str(bin / "hawser"), "queues", "--store", "sqlite:///jobs.db", cwd=tmp_path)


def test_the_wheel_has_all_files_of_the_package(built: Path):
    [wheel] = built.glob("hawser_jobs-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("hawser/")}
    tracked = run("git", "ls-files", "src/hawser", cwd=ROOT).splitlines()
    assert {name.removeprefix("src/") for name in tracked} <= packed


def test_the_sdist_has_what_a_build_needs(built: Path):
    [sdist] = built.glob("hawser_jobs-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/hawser/__init__.py", "script/test", "tests/conftest.py"} <= names
