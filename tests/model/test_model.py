"""Each store against the oracle, on random histories."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.stores import MACHINES

SETTINGS = settings(
    max_examples=int(os.environ.get("HAWSER_MODEL_EXAMPLES", "500")),
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("store", MACHINES)
def test_a_store_and_the_oracle_agree_on_every_history(store):
    run_state_machine_as_test(MACHINES[store], settings=SETTINGS)
