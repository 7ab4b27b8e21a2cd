"""A rolling deploy with a changed step, in small; `python -m tests.drills.attack changed-steps-sqlite` has 1,000 flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.cases.changed_steps import changed_steps


@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_a_deploy_with_a_changed_step_loses_nothing_and_charges_nothing_twice(store: str, tmp_path: Path):
    seen = changed_steps(tmp_path, store, flows=40, seconds=4.0)
    assert seen.held, seen.text
