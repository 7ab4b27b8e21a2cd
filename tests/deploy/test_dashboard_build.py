"""The build of the dashboard: from sources to wheel and sdist, with and without a registry."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.docs.documents import ROOT

NOWHERE = {"npm_config_registry": "http://127.0.0.1:9/"}
"""A registry that does not answer. The build must not need one, or say that it did."""

MAX_ALL = 70_000
MAX_FIRST = 32_000
"""Bytes, compressed: of the whole dashboard, of its first screen with all figures, of the charts that come behind them."""


def tracked(folder: Path) -> Path:
    """A copy of what a build needs and git knows: nothing is built in it."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in names:
        if name.startswith(("src/", "ui/")) or "/" not in name:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    return folder


def build(source: Path, out: Path, kind: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(out), str(source)]
    cache = {"npm_config_cache": str(out / "cache")} if "npm_config_registry" in environment else {}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **cache, **environment}
    )


def packed(out: Path) -> zipfile.ZipFile:
    [wheel] = out.glob("*.whl")
    return zipfile.ZipFile(wheel)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a clean copy of the sources."""
    folder = tmp_path_factory.mktemp("sdist")
    made = build(tracked(folder / "source"), folder / "out", "sdist", HAWSER_PAGE="require")
    assert made.returncode == 0, made.stdout + made.stderr
    [found] = (folder / "out").glob("*.tar.gz")
    return found


def test_a_wheel_from_the_sdist_has_the_dashboard_and_asks_no_registry(sdist: Path, tmp_path: Path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.glob("hawser_jobs-*")
    assert not list(source.rglob("node_modules"))
    made = build(source, tmp_path / "out", "wheel", HAWSER_PAGE="require", **NOWHERE)
    assert made.returncode == 0, made.stdout + made.stderr
    names = set(packed(tmp_path / "out").namelist())
    assert {"hawser/dashboard/index.html", "hawser/dashboard/licences.txt"} <= names
    assert any(name.startswith("hawser/dashboard/assets/app-") for name in names)


def test_it_is_as_small_as_promised(sdist: Path):
    with tarfile.open(sdist) as archive:
        files = {
            Path(member.name).name: archive.extractfile(member).read()  # type: ignore[union-attr]  # a file
            for member in archive.getmembers()
            if "/hawser/dashboard/assets/" in member.name
        }
    sizes = {name: len(gzip.compress(body, 9)) for name, body in files.items()}
    assert sum(sizes.values()) <= MAX_ALL, sizes
    app = next(name for name in files if name.startswith("app-"))
    first, ahead = set[str](), [app, *(name for name in files if name.startswith(("style-", "theme-")))]
    while ahead:
        name = ahead.pop()
        if name not in first:
            first.add(name)
            text = files[name].decode()
            # What is imported at once, not what is fetched with the screen that needs it.
            ahead += [other for other in files if f'from"./{other}"' in text or f'import"./{other}"' in text]
    assert sum(sizes[name] for name in first) <= MAX_FIRST, {name: sizes[name] for name in first}


def test_what_is_handed_on_has_its_licences(sdist: Path):
    with tarfile.open(sdist) as archive:
        [member] = [each for each in archive.getmembers() if each.name.endswith("/dashboard/licences.txt")]
        text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]  # a file
    for name in ("preact ", "@preact/signals "):
        assert f"\n{name}" in f"\n{text}"
    assert text.count("Permission is hereby granted") >= 2


def test_without_a_registry_the_wheel_is_built_and_says_what_is_missing(tmp_path: Path):
    source = tracked(tmp_path / "source")
    made = build(source, tmp_path / "out", "wheel", HAWSER_PAGE="try", **NOWHERE)
    assert made.returncode == 0, made.stdout + made.stderr
    reason = packed(tmp_path / "out").read("hawser/dashboard/missing.txt").decode()
    assert reason.startswith("npm could not fetch the packages of the dashboard: ")
    assert "ECONNREFUSED" in reason
    required = build(source, tmp_path / "again", "wheel", HAWSER_PAGE="require", **NOWHERE)
    assert required.returncode != 0
    assert "the dashboard was not built: npm could not fetch" in required.stdout + required.stderr


def test_the_dashboard_can_be_left_out(tmp_path: Path):
    made = build(tracked(tmp_path / "source"), tmp_path / "out", "wheel", HAWSER_PAGE="skip", **NOWHERE)
    assert made.returncode == 0, made.stdout + made.stderr
    assert b"HAWSER_PAGE=skip" in packed(tmp_path / "out").read("hawser/dashboard/missing.txt")


def test_the_lock_file_names_no_host_and_checks_every_package():
    text = (ROOT / "ui" / "package-lock.json").read_text()
    assert "http" not in text
    packages = json.loads(text)["packages"]
    assert all("integrity" in package for name, package in packages.items() if name)


def test_git_holds_sources_only():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert not [name for name in names if "node_modules" in name or name.startswith("src/hawser/dashboard/")]
    ours = [name for name in names if name.startswith("ui/") and not name.endswith("package-lock.json")]
    assert len(ours) > 20
    longest = {name: max(map(len, (ROOT / name).read_text().splitlines() or [""])) for name in ours}
    assert {name: length for name, length in longest.items() if length > 600} == {}


def test_data_never_becomes_markup():
    """Nor style or script: the policy of the page forbids it, and the sources do not try."""
    for file in (ROOT / "ui" / "src").rglob("*.ts*"):
        text = file.read_text()
        for word in ("dangerouslySetInnerHTML", "innerHTML", "insertAdjacentHTML", "document.write", "eval(", 'style="'):
            assert word not in text, f"{file.name}: {word}"
