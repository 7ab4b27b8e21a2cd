"""The model's own test: the oracle must notice every planted bug. `tests/contract/test_mutants.py` is the contract's."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Disagreement
from tests.model.stores import MACHINES
from tests.mutants import MUTANTS, planted
from tests.repetition import LONG

SLOW = ("postgres", "redis", "journal")
QUICK = [store for store in MACHINES if not store.startswith(SLOW) or os.environ.get("HAWSER_MODEL_MUTANTS")]
"""Where the oracle can play hundreds of histories in seconds; `HAWSER_MODEL_MUTANTS=1` adds the others."""

SETTINGS = settings(
    max_examples=500,
    stateful_step_count=50,
    deadline=None,
    database=None,
    # As in test_model.py: whether a rare bug is met must not change from run to run.
    derandomize=not LONG,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

CONTRACT_ONLY = {"rate_is_not_kept"}
"""Bugs that random histories meet too rarely: many starts under one limit within its period. The contract notices them."""


@pytest.mark.parametrize("store", QUICK)
@pytest.mark.parametrize("mutant", sorted(MUTANTS.keys() - CONTRACT_ONLY))
def test_the_oracle_notices(mutant, store):
    with planted(mutant), pytest.raises(Disagreement):
        _play(store)


def _play(store: str) -> None:
    """Hypothesis plays a history that failed once more. A broken store may then behave in another way, and that says nothing."""
    for left in (2, 1, 0):
        try:
            run_state_machine_as_test(MACHINES[store], settings=SETTINGS)
        except FlakyStrategyDefinition:
            if not left:
                raise
        else:
            return
