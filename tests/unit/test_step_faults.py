"""What went wrong with steps, sleeps and waits in other libraries, and the tests that show that it does not here.

A place is `file::test`. A mutant has the fault on purpose: a test has to notice it (`NOTICED_BY` beside the mutants' own tests).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from tests.contract.test_mutants import NOTICED_BY as NOTICED_BY_THE_CONTRACT
from tests.mutants import ALL
from tests.worker.test_mutants import NOTICED_BY as NOTICED_BY_THE_WORKER

ROOT = Path(__file__).parents[2]
CONTRACT = "src/hawser/testing/contract"


class Fault(NamedTuple):
    """Something that went wrong elsewhere."""

    seen_in: str
    places: tuple[str, ...]
    mutants: tuple[str, ...]


FAULTS = {
    "a time-out is not recorded": Fault(
        "absurd #96, #138",
        (
            f"{CONTRACT}/waits.py::test_a_time_out_is_the_same_in_every_run",
            "tests/worker/test_waits.py::test_a_time_out_is_raised_in_every_run",
        ),
        ("time_out_is_not_recorded", "wait_begins_anew", "an_event_in_time_is_late", "a_late_event_counts"),
    ),
    "an emit between look and park is lost": Fault(
        "absurd #61, dbos #621",
        (
            f"{CONTRACT}/waits.py::test_emit_between_the_look_and_the_wait_is_not_lost",
            f"{CONTRACT}/waits.py::test_no_wake_up_is_lost_when_all_comes_at_once",
        ),
        ("wait_without_a_look",),
    ),
    "a sleep by the client's clock": Fault(
        "dbos #682",
        (f"{CONTRACT}/steps.py::test_a_sleep_ends_by_the_clock_of_the_store",),
        ("sleep_by_the_clients_clock",),
    ),
    "a second run beside a long step": Fault(
        "",
        ("tests/worker/test_waits.py::test_no_second_run_goes_on_beside_a_long_step",),
        ("leases_are_not_extended", "step_without_fence"),
    ),
    "never recovered after a restart in the middle of the recovery": Fault(
        "dbos #716, #742, #805",
        (
            "tests/worker/test_waits.py::test_a_job_goes_on_though_every_worker_dies_that_goes_on_with_it",
            "tests/worker/test_steps.py::test_steps_of_isolated_jobs_survive_the_death_of_their_process",
        ),
        ("recovery_is_begun_once",),
    ),
    "an empty id that runs again for a month": Fault(
        "dbos #759",
        (
            "tests/worker/test_waits.py::test_a_wait_that_is_wrong_is_named",
            "tests/worker/test_steps.py::test_a_step_that_cannot_be_kept_fails_the_job_for_good",
        ),
        ("empty_names_pass",),
    ),
    "a stale run evicts the one that has the job": Fault(
        "hatchet #4969",
        (
            "tests/worker/test_waits.py::test_a_stale_run_cannot_hold_its_job",
            f"{CONTRACT}/waits.py::test_a_stale_run_decides_nothing",
        ),
        ("wait_without_fence", "no_fence"),
    ),
    "a parent waits in a slot for its children": Fault(
        "hatchet PR 3335",
        (
            "tests/worker/test_waits.py::test_a_parent_and_its_children_share_one_slot",
            f"{CONTRACT}/gathered.py::test_parents_do_not_take_the_places_of_their_children",
        ),
        ("a_parent_waits_in_its_slot",),
    ),
    "a result that is too large is tried for ever": Fault(
        "pydantic-ai PR 7157",
        (
            "tests/worker/test_steps.py::test_a_large_step_is_not_tried_again",
            "tests/worker/test_waits.py::test_results_that_are_too_large_together_fail_the_job_for_good",
        ),
        ("oversize_is_retried",),
    ),
    "the same name twice": Fault(
        "River PR 1281",
        ("tests/worker/test_steps.py::test_a_step_that_cannot_be_kept_fails_the_job_for_good",),
        ("same_name_twice", "last_record_of_a_step_wins"),
    ),
    "a suspension is eaten": Fault(
        "",
        (
            "tests/worker/test_steps.py::test_a_handler_that_catches_its_suspension_fails_with_that_reason",
            "tests/worker/test_waits.py::test_a_suspension_that_is_caught_is_named",
        ),
        ("suspension_is_eaten",),
    ),
    "code changes under a sleeping job": Fault(
        "absurd's documents, dbos #714",
        (
            "tests/worker/test_steps.py::test_a_kept_value_that_no_longer_fits_names_the_step_and_both_sides",
            "tests/worker/test_steps.py::test_a_step_under_the_name_of_an_old_sleep_is_named",
            "tests/worker/test_waits.py::test_code_that_waits_elsewhere_now_is_named",
        ),
        ("kept_values_are_believed", "kept_kinds_are_believed"),
    ),
    "a task is collected while it waits": Fault(
        "dbos #711",
        ("tests/worker/test_waits.py::test_a_job_without_handlers_in_memory_is_not_forgotten",),
        ("a_wait_stands_in_a_task",),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_mutant_of_a_fault_is_noticed_by_a_test_that_is_known(fault: str):
    """A name alone proves nothing: the tests of the mutants plant each, and run the test that has to fail."""
    noticed = NOTICED_BY_THE_CONTRACT.keys() | NOTICED_BY_THE_WORKER.keys()
    assert sorted(set(FAULTS[fault].mutants) - noticed) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_others_has_a_test_here(fault: str):
    missing = []
    for place in FAULTS[fault].places:
        path, _, name = place.partition("::")
        if f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8"):
            missing.append(place)
    assert missing == []
    assert FAULTS[fault].mutants
    assert set(FAULTS[fault].mutants) <= ALL.keys()


def test_what_the_design_names_is_here():
    assert len(FAULTS) == 13
