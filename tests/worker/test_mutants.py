"""The worker's own tests: of every planted bug it is known which test notices it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from hawser import Hawser
from tests.mutants import HANDLERS, planted
from tests.worker import test_output, test_steps, test_turns, test_waits

MODULES = (test_steps, test_waits, test_output, test_turns)

NOTICED_BY: dict[str, tuple[str, dict[str, Any]]] = {
    "suspension_is_eaten": ("test_a_handler_that_catches_its_suspension_fails_with_that_reason", {}),
    "same_name_twice": (
        "test_a_step_that_cannot_be_kept_fails_the_job_for_good",
        {"handler": test_steps._twice, "eaten": False},
    ),
    "oversize_is_retried": ("test_a_large_step_is_not_tried_again", {}),
    "recovery_is_begun_once": ("test_a_job_goes_on_though_every_worker_dies_that_goes_on_with_it", {"patience": 1}),
    "leases_are_not_extended": ("test_no_second_run_goes_on_beside_a_long_step", {}),
    "empty_names_pass": (
        "test_a_step_that_cannot_be_kept_fails_the_job_for_good",
        {"handler": test_steps._empty_name, "eaten": False},
    ),
    "a_parent_waits_in_its_slot": ("test_a_parent_and_its_children_share_one_slot", {"patience": 1}),
    "kept_values_are_believed": ("test_a_kept_value_that_no_longer_fits_names_the_step_and_both_sides", {}),
    "kept_kinds_are_believed": ("test_code_that_waits_elsewhere_now_is_named", {"patience": 1}),
    "a_wait_stands_in_a_task": ("test_a_job_without_handlers_in_memory_is_not_forgotten", {"patience": 1}),
    "declined_beside_a_claim": (
        "test_what_a_child_process_declines_while_a_claim_is_under_way_is_not_offered_here_again",
        {},
    ),
    "output_behind_the_outcome": ("test_a_thousand_chunks_are_a_few_writes_in_order_and_before_the_outcome", {"kind": "async"}),
}


@pytest.mark.parametrize("mutant", HANDLERS)
async def test_a_planted_bug_is_noticed(mutant: str):
    name, given = NOTICED_BY[mutant]
    [test] = [vars(module)[name] for module in MODULES if name in vars(module)]
    given = {"app": Hawser("memory://"), **given}
    with planted(mutant), pytest.raises((AssertionError, TimeoutError)):
        await test(**{name: given[name] for name in inspect.signature(test).parameters})
