"""The guard against dearer hot paths, fed with figures; and that it can measure."""

from __future__ import annotations

import copy
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "check.py"
KEPT: dict[str, Any] = {
    "sqlite": {"enqueue": {"loops": 50.0}, "worker": {"loops": 150.0}},
    "postgres": {"enqueue": {"loops": 50.0, "log_bytes": 357.0}, "worker": {"loops": 250.0, "log_bytes": 680.0}},
}


@pytest.fixture(scope="module")
def check() -> Any:
    spec = importlib.util.spec_from_file_location("bench_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_figure(store: str, path: str, unit: str, value: float) -> dict[str, Any]:
    found = copy.deepcopy(KEPT)
    found[store][path][unit] = value
    return found


def run(tmp_path: Path, found: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    for name, figures in (("kept", KEPT), ("found", found)):
        (tmp_path / name).write_text(json.dumps({"stores": figures}))
    words = ("--kept", str(tmp_path / "kept"), "--figures", str(tmp_path / "found"), *words)
    return subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("store", "path", "unit", "value"),
    [
        ("sqlite", "enqueue", "loops", 52.6),
        ("postgres", "worker", "loops", 263.0),
        ("postgres", "enqueue", "log_bytes", 375.0),
    ],
)
def test_it_fails_when_a_path_gets_dearer_by_more_than_a_twentieth(store, path, unit, value, tmp_path):
    said = run(tmp_path, with_figure(store, path, unit, value))
    assert said.returncode == 1
    [line] = [line for line in said.stdout.splitlines() if line.startswith("dearer")]
    assert line.startswith(f"dearer: {store} {path}: ")
    assert "+5." in line


def test_it_holds_within_a_twentieth_and_tells_what_got_cheaper(tmp_path):
    said = run(tmp_path, with_figure("sqlite", "worker", "loops", 157.0))
    assert (said.returncode, said.stdout) == (0, "bench-check: held, within 5%\n")
    said = run(tmp_path, with_figure("sqlite", "worker", "loops", 140.0))
    assert said.returncode == 0
    assert said.stdout.startswith("cheaper: sqlite worker: 140 loops a job, -6.7% of the 150 that are kept")


def test_a_path_without_a_kept_figure_fails_and_so_does_one_that_was_not_measured(check):
    found = {"sqlite": {"enqueue": {"loops": 50.0}, "claim": {"loops": 9.0}}}
    new, missing = check.compared(KEPT, found)[0]
    assert "nothing is kept to hold it against" in new
    assert missing == "sqlite worker is kept and was not measured"


def test_figures_that_are_to_be_kept_are_written_beside_those_of_other_stores(tmp_path):
    assert run(tmp_path, {"sqlite": {"enqueue": {"loops": 40.0}}}, "--keep").returncode == 0
    kept = json.loads((tmp_path / "kept").read_text())["stores"]
    assert kept == {**KEPT, "sqlite": {"enqueue": {"loops": 40.0}}}


def test_the_least_of_two_measurements_counts(check):
    other = with_figure("sqlite", "enqueue", "loops", 48.0)
    assert check.least(with_figure("sqlite", "worker", "loops", 149.0), other) == {
        **KEPT,
        "sqlite": {"enqueue": {"loops": 48.0}, "worker": {"loops": 149.0}},
    }


def test_what_is_kept_has_every_path_of_every_store_and_the_log_of_servers(check):
    kept = json.loads(check.KEPT.read_text())["stores"]
    assert {store: set(paths) for store, paths in kept.items()} == {key: set(check.PATHS) for key in check.STORES}
    assert all("log_bytes" in kept[store][path] for store in ("postgres", "redis") for path in check.PATHS)


def test_it_measures_every_path(tmp_path):
    kept = tmp_path / "kept"
    words = ("--only", "memory,sqlite", "--jobs", "800", "--rounds", "1", "--keep", "--kept", str(kept))
    said = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == 0, said.stderr
    for paths in json.loads(kept.read_text())["stores"].values():
        assert all(figures["loops"] > 0 for figures in paths.values())
