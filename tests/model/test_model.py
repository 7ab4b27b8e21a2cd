"""Each store against the oracle, on random histories."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.model import histories
from tests.model.stores import MACHINES


@pytest.mark.parametrize("store", MACHINES)
def test_a_store_and_the_oracle_agree_on_every_history(store):
    run_state_machine_as_test(MACHINES[store], settings=histories.whole(store))


@pytest.mark.parametrize("store", MACHINES)
def test_a_store_and_the_oracle_agree_when_the_clock_is_set_back(store):
    unsteady = type("Unsteady", (MACHINES[store],), {"steady": False})
    run_state_machine_as_test(unsteady, settings=histories.whole(store, share=5))
