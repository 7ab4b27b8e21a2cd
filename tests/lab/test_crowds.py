"""The bars of `benchmarks/crowds.py`, fed with rounds: what a disturbed run does not show is not said to hold."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "crowds.py"


@pytest.fixture(scope="module")
def crowds() -> Any:
    spec = importlib.util.spec_from_file_location("crowds_bench", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rounds(count: int, dearer: float = 1.0, slow: float = 1.0, seed: int = 1) -> list[list[float]]:
    """Claims of a millisecond or so, and every fiftieth takes ten."""
    chance = random.Random(seed)
    claims = [[chance.uniform(0.9, 1.1) * dearer / 1_000 for _ in range(10)] for _ in range(count)]
    for each in claims[::5]:
        each[0] = 10 * slow * chance.uniform(0.9, 1.1) / 1_000
    return claims


def judged(crowds: Any, alone: list[list[float]], beside: list[list[float]]) -> list[bool | None]:
    figures = crowds.ratios(alone, beside)
    return [crowds.Bar(name, most=1.02).holds(figures) for name in ("p50_ratio", "p99_ratio")]


def test_what_costs_others_nothing_holds_and_what_does_is_missed(crowds: Any):
    assert judged(crowds, rounds(400), rounds(400)) == [True, True]
    assert judged(crowds, rounds(400), rounds(400, dearer=1.1)) == [False, True]
    assert judged(crowds, rounds(400), rounds(400, slow=1.5)) == [True, False], "of the slowest of a hundred"


def test_a_few_rounds_do_not_show_two_of_a_hundred(crowds: Any):
    assert judged(crowds, rounds(6), rounds(6, seed=2))[1] is None


def test_a_figure_without_a_range_is_judged_by_itself(crowds: Any):
    assert crowds.Bar("claims", most=1).holds({"claims": 1}) is True
    assert crowds.Bar("claims", most=1).holds({"claims": 2}) is False
    assert crowds.Bar("share", least=0.88).holds({"share": 0.8}) is False
