"""Two releases of one app at once, in short; `two-releases` of the attack plays it at length, and looks at the times, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.cases.rollout import rolled_out


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_rolling_deploy_costs_no_attempt_and_an_old_worker_does_not_spin(tmp_path: Path, store: str):
    found = rolled_out(tmp_path, store, rounds=8, alone_for=1.0)
    assert found.jobs == 25
    assert found.right, found
