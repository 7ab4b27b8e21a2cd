"""Groups that take turns: each store against their oracle, and the oracle's own test."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model import histories, test_mutants
from tests.model.played import Disagreement
from tests.model.stores import GROUPS
from tests.mutants import planted
from tests.repetition import LONG

MUTANTS = (
    "a_run_leaves_its_group_shut",
    "a_requeue_leaves_its_group_shut",
    "a_rewind_leaves_its_group_shut",
    "a_change_leaves_its_group_shut",
    "a_release_leaves_its_group_shut",
    "a_run_leaves_its_limited_group_shut",
    "groups_are_counted_together",
    "rate_of_a_group_is_not_kept",
    "a_retry_loses_its_place",
    "weights_do_not_count",
    "rate_is_not_kept",
)


@pytest.mark.parametrize("store", GROUPS)
def test_a_store_and_the_oracle_agree_on_groups(store: str):
    run_state_machine_as_test(GROUPS[store], settings=histories.single(store))


@pytest.mark.parametrize("store", test_mutants.QUICK)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_oracle_of_groups_notices(mutant: str, store: str):
    with planted(mutant), pytest.raises(Disagreement):
        run_state_machine_as_test(GROUPS[store], settings=settings(test_mutants.SETTINGS, derandomize=not LONG))
