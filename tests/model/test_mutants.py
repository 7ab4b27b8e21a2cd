"""The tests' test: the oracle and the contract must each notice every planted bug, in each store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Disagreement
from tests.model.stores import MACHINES
from tests.mutants import MUTANTS, VARIABLE, planted
from tests.postgres import GIVEN, server, versions

ROOT = Path(__file__).parents[2]

STORES = [store for store in MACHINES if store != "postgres-old"]
"""The statements are the same on every server."""

QUICK = [store for store in STORES if store != "postgres" or os.environ.get("HAWSER_MODEL_MUTANTS")]
"""Where the oracle can play hundreds of histories in seconds; `HAWSER_MODEL_MUTANTS=1` adds the others."""

SETTINGS = settings(
    max_examples=500,
    stateful_step_count=50,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("store", QUICK)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_oracle_notices(mutant, store):
    with planted(mutant), pytest.raises(Disagreement):
        run_state_machine_as_test(MACHINES[store], settings=SETTINGS)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_contract_notices(mutant, store):
    suite = ROOT / "tests" / "contract" / f"test_{store}.py"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(suite)],
        cwd=ROOT,
        env=os.environ | {VARIABLE: mutant, "PYTHONPATH": str(ROOT / "src")} | _server_of(store),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # A test that failed, not one that could not be set up or collected.
    assert run.returncode == 1, run.stdout[-3000:] + run.stderr
    assert "\nFAILED " in run.stdout, run.stdout[-3000:]


def _server_of(store: str) -> dict[str, str]:
    """One server, which runs already, is enough to notice."""
    return {GIVEN: server(versions()[-1])} if store == "postgres" else {}
