"""Debounced jobs and jobs requeued over a time: each store against their oracle, and the oracle's own test."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model import histories, test_mutants
from tests.model.played import Disagreement
from tests.model.stores import PUT_OFF
from tests.mutants import planted
from tests.repetition import LONG

MUTANTS = ("older_calls_replace_newer_ones", "put_off_without_an_end", "a_spread_is_not_kept")


@pytest.mark.parametrize("store", PUT_OFF)
def test_a_store_and_the_oracle_agree_on_jobs_that_are_put_off(store: str):
    run_state_machine_as_test(PUT_OFF[store], settings=histories.single(store))


@pytest.mark.parametrize("store", test_mutants.QUICK)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_oracle_of_jobs_that_are_put_off_notices(mutant: str, store: str):
    with planted(mutant), pytest.raises(Disagreement):
        run_state_machine_as_test(PUT_OFF[store], settings=settings(test_mutants.SETTINGS, derandomize=not LONG))
