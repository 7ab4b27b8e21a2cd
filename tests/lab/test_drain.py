"""The rates that the drain experiment tells, from few looks and from many."""

from __future__ import annotations

import pytest

from hawser.lab.experiments.drain import amiss, rates


def per_tenth(*seen: tuple[float, int]) -> list[int]:
    return [per_s for _, per_s in rates(list(seen), 10)]


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([(0.0, 1_600), (2.0, 41_600)], id="two looks"),
        pytest.param([(0.0, 0), (0.5, 10_000), (1.0, 20_000), (2.0, 40_000)], id="one look in the first tenth"),
        pytest.param([(n / 100, n * 200) for n in range(201)], id="many looks in every tenth"),
    ],
)
def test_an_even_drain_has_the_same_rate_in_every_tenth(seen):
    assert per_tenth(*seen) == [20_000] * 10


def test_a_drain_that_slows_down_shows_it():
    tenths = per_tenth((0.0, 0), (1.0, 20_000), (5.0, 40_000))
    assert tenths[0] == 20_000
    assert tenths[-1] == 5_000


def test_a_drain_that_ends_between_two_looks_has_no_rate_and_says_so():
    assert per_tenth((0.0, 40_000)) == []
    [said] = amiss(40_000, 40_000, None, judged=False)
    assert "drained between two looks" in said


def test_a_rate_that_decays_is_judged_only_in_a_full_run():
    assert amiss(10, 10, 0.5, judged=False) == []
    [said] = amiss(10, 10, 0.5, judged=True)
    assert "ran at 0.50 of the first" in said
