"""The model's own test: the oracle must notice every planted bug. `tests/contract/test_mutants.py` is the contract's."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from tests.model.played import Disagreement
from tests.model.stores import MACHINES
from tests.mutants import MUTANTS, planted
from tests.repetition import LONG

SLOW = ("postgres", "redis", "journal")
QUICK = [store for store in MACHINES if not store.startswith(SLOW) or os.environ.get("HAWSER_MODEL_MUTANTS")]
"""Where the oracle can play hundreds of histories in seconds; `HAWSER_MODEL_MUTANTS=1` adds the others."""

ROUNDS = 4
"""Of 500 histories each, with seeds of their own: a bug that needs a rare history may not be met in the first."""

SETTINGS = settings(
    max_examples=500,
    stateful_step_count=50,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

CONTRACT_ONLY = {"rate_is_not_kept", "wait_begins_anew", "older_calls_replace_newer_ones"}
"""Bugs that random histories meet too rarely: many starts under one limit within its period, a second run at the same wait. The
model has no debounced jobs. The contract notices them."""


@pytest.mark.parametrize("store", QUICK)
@pytest.mark.parametrize("mutant", sorted(MUTANTS.keys() - CONTRACT_ONLY))
def test_the_oracle_notices(mutant, store):
    with planted(mutant), pytest.raises(Disagreement):
        _play(store)


def _play(store: str) -> None:
    """Hypothesis plays a history that failed once more. A broken store may then behave in another way, and that says nothing.

    The seeds are the same at every run of script/test: whether a rare bug is met must not change from run to run.
    """
    for round in range(ROUNDS):
        machine = type("Seeded", (MACHINES[store],), {})
        with suppress(FlakyStrategyDefinition):
            run_state_machine_as_test(machine if LONG else seed(round)(machine), settings=SETTINGS)
