"""The model's own test: the oracle must notice every planted bug. `tests/contract/test_mutants.py` is the contract's."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from tests.model.played import Disagreement
from tests.model.stores import MACHINES
from tests.mutants import ADMISSION, ALL, BESIDE_THE_JOBS, HANDLERS, MUTANTS, planted
from tests.repetition import LONG, over

SLOW = [store for store in MACHINES if store.startswith(("postgres", "redis", "journal"))]
QUICK = [*over(["memory"], ["sqlite"]), *(SLOW if os.environ.get("HAWSER_MODEL_MUTANTS") else ())]
"""Where the oracle is put to the test; `HAWSER_MODEL_MUTANTS=1` adds those that take long. The oracle is one for every store,
and `tests/contract/test_mutants.py` plants each bug in each of them: in `script/test` the store in memory is enough."""

ROUNDS = 4
"""Of 500 histories each, with seeds of their own: a bug that needs a rare history may not be met in the first."""

SETTINGS = settings(
    max_examples=500,
    stateful_step_count=50,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

CONTRACT_ONLY = {"rate_is_not_kept", "wait_begins_anew", "older_calls_replace_newer_ones"}
"""Bugs that random histories meet too rarely: many starts under one limit within its period, a second run at the same wait.
There are no debounced jobs here. The contract notices them; the first is noticed by the model of groups, too, the last by that of
jobs that are put off."""

PLAYED = [(mutant, store) for mutant in sorted(MUTANTS.keys() - CONTRACT_ONLY) for store in QUICK]


def test_the_findings_count_the_mutants():
    """How many there are, in the stores and in all, and how many of them the model notices."""
    findings = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
    told = findings.split("**The tests are tested.** ", 1)[1].split("\n\n", 1)[0]
    in_stores, by_the_model = MUTANTS | BESIDE_THE_JOBS, MUTANTS.keys() - CONTRACT_ONLY
    counted = [len(ALL), len(in_stores), len(by_the_model), len(in_stores) - len(by_the_model), len(BESIDE_THE_JOBS)]
    counted += [len(ADMISSION), len(HANDLERS)]
    assert [int(number) for number in re.findall(r"(?<![=\w])\d+\b", told)] == counted
    assert all(f"`{name}`" in told for name in CONTRACT_ONLY)


@pytest.mark.parametrize(("mutant", "store"), PLAYED)
def test_the_oracle_notices(mutant, store):
    with planted(mutant), pytest.raises(Disagreement):
        _play(store)


def _play(store: str) -> None:
    """Hypothesis plays a history that failed once more. A broken store may then behave in another way, and that says nothing.

    The seeds are the same at every run of script/test: whether a rare bug is met must not change from run to run.
    """
    for round in range(ROUNDS):
        machine = type("Seeded", (MACHINES[store],), {})
        with suppress(FlakyStrategyDefinition):
            run_state_machine_as_test(machine if LONG else seed(round)(machine), settings=SETTINGS)
