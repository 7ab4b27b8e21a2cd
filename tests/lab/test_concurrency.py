"""What `hawser lab concurrency` judges by: many processes beside few."""

from __future__ import annotations

import json
import subprocess
import sys

from hawser.lab.experiments.concurrency import too_slow


def test_many_processes_that_are_too_slow_are_said_where_they_are_judged():
    assert too_slow(0.7, judged=True) == too_slow(0.5, judged=False) == too_slow(None, judged=True) == []
    [said] = too_slow(0.69, judged=True)
    assert "0.69 of the rate of 2 processes of 256; the bar is 0.7" in said


def test_processes_are_told_with_their_bound_and_with_what_more_of_them_cost(tmp_path):
    words = [sys.executable, "-m", "hawser.cli", "lab", "concurrency", "--quick", "--out", str(tmp_path), "--json"]
    words += ["--set", "jobs=600", "--set", "slots=0", "--set", "rounds=1"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert [(row["processes"], row["slots"]) for row in found["figures"]["by_processes"]] == [(2, 256), (8, 64)]
    assert [row.keys() for row in found["figures"]["rounds"]]
    assert found["figures"]["by_slots"] == []
    assert "The same slots in 8 processes instead of 2" in found["text"]
