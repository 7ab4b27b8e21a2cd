"""The worker's own test of what handlers are given: of every planted bug it is known which test notices it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from hawser import Hawser
from tests.mutants import HANDLERS, planted
from tests.worker import test_output, test_steps

MODULES = (test_steps, test_output)

NOTICED_BY: dict[str, tuple[str, dict[str, Any]]] = {
    "suspension_is_eaten": ("test_a_handler_that_catches_its_suspension_fails_with_that_reason", {}),
    "same_name_twice": (
        "test_a_step_that_cannot_be_kept_fails_the_job_for_good",
        {"handler": test_steps._twice, "eaten": False},
    ),
    "oversize_is_retried": ("test_a_large_step_is_not_tried_again", {}),
    "output_behind_the_outcome": ("test_a_thousand_chunks_are_a_few_writes_in_order_and_before_the_outcome", {"kind": "async"}),
}


@pytest.mark.parametrize("mutant", HANDLERS)
async def test_a_planted_bug_is_noticed(mutant: str):
    name, given = NOTICED_BY[mutant]
    [test] = [vars(module)[name] for module in MODULES if name in vars(module)]
    given = {"app": Hawser("memory://"), **given}
    with planted(mutant), pytest.raises(AssertionError):
        await test(**{name: given[name] for name in inspect.signature(test).parameters})
