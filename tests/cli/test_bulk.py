"""The rate at which many jobs are acted on."""

import pytest

from hawser.cli.bulk import Pace


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("rate", [0.5, 1, 7, 100, 10_000])
def test_the_rate_is_kept(rate: float):
    time = Time()
    pace = Pace(rate, clock=time.clock, sleep=time.sleep)
    sent = 0
    while sent < rate * 20:
        pace.wait(pace.batch)
        sent += pace.batch
    pace.wait(1)
    assert sent / (time.now - 100.0) == pytest.approx(rate, rel=0.01)


def test_the_first_goes_at_once():
    time = Time()
    Pace(0.001, clock=time.clock, sleep=time.sleep).wait(1)
    assert time.now == 100.0


def test_what_a_slow_store_cost_is_not_made_up_for_by_a_burst():
    time = Time()
    pace = Pace(1, clock=time.clock, sleep=time.sleep)
    pace.wait(1)
    time.now += 50
    pace.wait(1)
    before = time.now
    pace.wait(1)
    assert time.now - before == pytest.approx(1)
