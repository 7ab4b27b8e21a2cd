"""Each store against the oracle, on random histories."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.stores import MACHINES
from tests.repetition import LONG, times

EXAMPLES = int(os.environ.get("HAWSER_MODEL_EXAMPLES", times(60, 500)))
"""Histories. `HAWSER_MODEL_EXAMPLES=2000` plays more, on every store."""

ON_SERVERS = int(os.environ.get("HAWSER_MODEL_EXAMPLES", times(15, 150)))
"""Histories on a store that is asked over a wire, and so is slower."""

SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    # The same histories at every run of script/test, other ones at every run of script/long.
    derandomize=not LONG,
    deadline=None,
    print_blob=True,
    # A machine of many rules: some draws leave none that applies.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("store", MACHINES)
def test_a_store_and_the_oracle_agree_on_every_history(store):
    run_state_machine_as_test(MACHINES[store], settings=settings(SETTINGS, max_examples=_examples(store)))


@pytest.mark.parametrize("store", MACHINES)
def test_a_store_and_the_oracle_agree_when_the_clock_is_set_back(store):
    unsteady = type("Unsteady", (MACHINES[store],), {"steady": False})
    run_state_machine_as_test(unsteady, settings=settings(SETTINGS, max_examples=_examples(store) // 5))


def _examples(store: str) -> int:
    return ON_SERVERS if store.startswith(("postgres", "redis")) else EXAMPLES
