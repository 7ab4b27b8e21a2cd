"""The wait between attempts."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hawser import ConfigError, Exponential, Fixed, Linear
from hawser.backoff import Backoff
from hawser.clock import MAX_DELAY

RULES: list[Backoff] = [Exponential(), Linear(), Fixed(), Exponential(base=0.5, cap=7), Linear(step=3, cap=10)]


class Lowest:
    def uniform(self, a: float, b: float, /) -> float:
        assert a <= b
        return a


class Highest:
    def uniform(self, a: float, b: float, /) -> float:
        assert a <= b
        return b


def test_exponential_doubles_up_to_its_cap():
    rule = Exponential(base=30, cap=3600, jitter="none")
    assert [rule.delay(n) for n in (1, 2, 3, 7, 8, 9, 10_000)] == [30, 60, 120, 1920, 3600, 3600, 3600]


def test_linear_adds_up_to_its_cap():
    rule = Linear(step=10, cap=35, jitter="none")
    assert [rule.delay(n) for n in (1, 2, 3, 4, 10_000)] == [10, 20, 30, 35, 35]


def test_fixed_stays():
    assert [Fixed(every=7, jitter="none").delay(n) for n in (1, 2, 10_000)] == [7, 7, 7]


@given(rule=st.sampled_from(RULES), attempt=st.integers(1, 10_000), seed=st.integers())
def test_full_jitter_is_anywhere_up_to_the_ceiling(rule, attempt, seed):
    assert 0 <= rule.delay(attempt, random.Random(seed)) <= rule.ceiling(attempt)
    assert rule.delay(attempt, Highest()) == rule.ceiling(attempt)


@pytest.mark.parametrize(("jitter", "shortest", "longest"), [("full", 0, 8), ("equal", 4, 8), ("added", 8, 12), ("none", 8, 8)])
@pytest.mark.parametrize("kind", [Exponential(base=8), Linear(step=8), Fixed(every=8)])
def test_where_the_wait_lies_with_each_jitter(kind, jitter, shortest, longest):
    rule = structs.replace(kind, jitter=jitter)
    assert (rule.delay(1, Lowest()), rule.delay(1, Highest())) == (shortest, longest)
    assert all(shortest <= rule.delay(1) <= longest for _ in range(50))


def test_added_jitter_does_not_pass_the_longest_delay():
    rule = Fixed(every=MAX_DELAY, jitter="added")
    assert rule.delay(1, Highest()) == MAX_DELAY


@pytest.mark.parametrize("rule", RULES)
def test_the_ceiling_never_falls(rule):
    ceilings = [rule.ceiling(n) for n in range(1, 200)]
    assert all(a <= b for a, b in pairwise(ceilings))


def test_jitter_is_full_unless_it_is_turned_off():
    rule = Exponential()
    assert rule.jitter == "full"
    assert len({rule.delay(3) for _ in range(20)}) > 1


@pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan")])
def test_a_wrong_time_is_named(wrong):
    with pytest.raises(ConfigError, match="backoff base: "):
        Exponential(base=wrong)
    with pytest.raises(ConfigError, match="backoff cap: "):
        Linear(cap=wrong)
    with pytest.raises(ConfigError, match="backoff every: "):
        Fixed(every=wrong)


def test_a_wrong_jitter_is_named():
    with pytest.raises(ConfigError, match="backoff jitter: 'some' is not known; use 'full', 'equal', 'added', 'none'"):
        Fixed(jitter="some")  # type: ignore[arg-type]
