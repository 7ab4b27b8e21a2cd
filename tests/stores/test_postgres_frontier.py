"""Where claims begin to read, and when that may be believed."""

from __future__ import annotations

import time

from hawser.clock import to_us
from hawser.stores.postgres import frontier
from hawser.stores.postgres.frontier import Frontier, FrontierPlace
from hawser.stores.postgres.lane_catalog import Kind, LaneSource


def test_a_frontier_is_where_the_head_was_a_moment_ago():
    seen, source = Frontier(), LaneSource(1, Kind.FRESH)
    now = 10**15
    for n in range(100):
        seen.at(now + n * frontier.LAG // 4, time.monotonic())
        seen.saw(source, FrontierPlace(n, 0))
    assert seen.of(source) == FrontierPlace(95, 0)
    assert seen.of(LaneSource(1, Kind.LATE)) == frontier.START
    seen.fall_back(source, FrontierPlace(7, 3))
    assert seen.of(source) == FrontierPlace(7, 3)


def test_a_clock_that_was_set_back_while_nobody_looked_takes_the_frontier_along(monkeypatch):
    seen, source, began = Frontier(), LaneSource(1, Kind.FRESH), time.monotonic()
    for second in range(3):
        monkeypatch.setattr(time, "monotonic", lambda second=second: began + second)
        seen.at(10**15 + to_us(second), time.monotonic())
        seen.saw(source, FrontierPlace(second, 0))
    assert seen.of(source) != frontier.START
    monkeypatch.setattr(time, "monotonic", lambda: began + 60)
    seen.at(10**15 + to_us(30), time.monotonic())
    assert seen.of(source) == frontier.START


def test_an_answer_that_was_long_in_coming_does_not_cost_the_frontier(monkeypatch):
    """Else a slow claim would make the next one begin at the very left, which makes it slow, and so on for ever."""
    seen, source, began = Frontier(), LaneSource(1, Kind.FRESH), time.monotonic()
    for second in range(6):
        slow = 0.9 if second == 4 else 0.0
        monkeypatch.setattr(time, "monotonic", lambda second=second, slow=slow: began + second + slow)
        seen.at(10**15 + to_us(second), began + second)
        seen.saw(source, FrontierPlace(second, 0))
    assert seen.of(source) == FrontierPlace(4, 0)


def test_a_clock_that_is_set_back_takes_the_frontier_along():
    seen, source = Frontier(), LaneSource(1, Kind.FRESH)
    for now in (10**15, 2 * 10**15, 3 * 10**15):
        seen.at(now, time.monotonic())
        seen.saw(source, FrontierPlace(now, 0))
    assert seen.of(source) != frontier.START
    seen.at(10**15, time.monotonic())
    assert seen.of(source) == frontier.START


def test_a_job_that_comes_before_the_head_holds_the_frontier():
    seen, source, now = Frontier(), LaneSource(1, Kind.FRESH), 10**15
    for n in (0, 1, 2, 3):
        seen.at(now + n * frontier.LAG // 4, time.monotonic())
        seen.saw(source, FrontierPlace(10 + n, 0))
    seen.saw(source, FrontierPlace(11, 5))
    seen.at(now + 10 * frontier.LAG, time.monotonic())
    assert seen.of(source) <= FrontierPlace(11, 5)


def test_claims_that_fill_up_go_on_where_the_last_one_ended_but_not_for_long(monkeypatch):
    seen, source, began = Frontier(), LaneSource(1, Kind.FRESH), time.monotonic()
    assert seen.on(source) == frontier.START
    seen.ended(source, FrontierPlace(5, 5))
    assert seen.on(source) == FrontierPlace(5, 5)
    monkeypatch.setattr(time, "monotonic", lambda: began + 2 * frontier.STRETCH)
    assert seen.on(source) == frontier.START, "for what has become visible behind"
    seen.ended(source, FrontierPlace(6, 6))
    seen.ended(source, None)
    assert seen.on(source) == frontier.START, "the last claim found less than it could take"
