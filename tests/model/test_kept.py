"""Output and operations on many jobs: each store against their oracle, and the oracle's own test."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model import histories, test_mutants
from tests.model.played import Disagreement
from tests.model.stores import KEPT
from tests.mutants import planted
from tests.repetition import LONG

MUTANTS = (
    "output_without_fence",
    "output_is_kept_twice",
    "bulk_step_of_any_turn",
    "bulk_step_twice",
    "bulk_taken_from_the_living",
)


@pytest.mark.parametrize("store", KEPT)
def test_a_store_and_the_oracle_agree_on_what_is_kept_beside_jobs(store: str):
    run_state_machine_as_test(KEPT[store], settings=histories.single(store))


@pytest.mark.parametrize("store", test_mutants.QUICK)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_oracle_of_what_is_kept_notices(mutant: str, store: str):
    with planted(mutant), pytest.raises(Disagreement):
        run_state_machine_as_test(KEPT[store], settings=settings(test_mutants.SETTINGS, derandomize=not LONG))
