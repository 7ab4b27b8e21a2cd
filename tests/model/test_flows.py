"""Batches and jobs that wait for others: each store against their oracle, and the oracle's own test."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.model import histories, test_mutants
from tests.model.played import Disagreement
from tests.model.stores import FLOWS
from tests.mutants import planted

MUTANTS = (
    "a_gather_waits_for_any_end",
    "an_open_batch_ends",
    "any_end_will_do",
    "ends_of_members_are_not_counted",
    "ended_batches_take_more",
)
"""Bugs that random histories meet soon. That a batch ends between a member and what it adds is rare: the contract notices."""


@pytest.mark.parametrize("store", FLOWS)
def test_a_store_and_the_oracle_agree_on_batches(store: str):
    run_state_machine_as_test(FLOWS[store], settings=histories.single(store))


@pytest.mark.parametrize("store", test_mutants.QUICK)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_oracle_of_batches_notices(mutant: str, store: str):
    with planted(mutant), pytest.raises(Disagreement):
        run_state_machine_as_test(FLOWS[store], settings=test_mutants.SETTINGS)
