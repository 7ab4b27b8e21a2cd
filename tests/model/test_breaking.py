"""Breakers: each store against their oracle, and the oracle's own test."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model import histories, test_mutants
from tests.model.played import Disagreement
from tests.model.stores import BREAKERS
from tests.mutants import planted
from tests.repetition import LONG

MUTANTS = (
    "a_breaker_opens_twice",
    "a_judge_closes_what_a_person_opened",
    "an_open_breaker_keeps_nothing_back",
    "every_claim_gets_a_probe",
)


@pytest.mark.parametrize("store", BREAKERS)
def test_a_store_and_the_oracle_agree_on_breakers(store: str):
    run_state_machine_as_test(BREAKERS[store], settings=histories.single(store))


@pytest.mark.parametrize("store", test_mutants.QUICK)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_oracle_of_breakers_notices(mutant: str, store: str):
    with planted(mutant), pytest.raises(Disagreement):
        run_state_machine_as_test(BREAKERS[store], settings=settings(test_mutants.SETTINGS, derandomize=not LONG))
