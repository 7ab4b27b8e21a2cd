"""Jobs that expire, as the app makes them and upkeep ends them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hawser import JobFailed
from hawser.job import State
from hawser.testing.app import AppUnderTest
from hawser.upkeep.expirer import BETWEEN_STEPS_S, EXPIRE_EVERY_S, EXPIRED_PER_STEP, Expirer


def test_an_expiry_is_given_in_seconds_or_as_a_timedelta(hawser_app: AppUnderTest):
    @hawser_app.task
    def push(to: str) -> None: ...

    for expires in (600, timedelta(minutes=10)):
        job = hawser_app.get(push.using(expires=expires).enqueue("ann").id)
        assert job.expires_at == job.enqueued_at + timedelta(minutes=10)
    assert hawser_app.get(push.using(expires=600).using(expires=None).enqueue("ann").id).expires_at is None
    assert push.using(expires=600).job("ann").expires == 600


def test_who_waits_for_a_job_that_expired_is_told(hawser_app: AppUnderTest):
    @hawser_app.task
    def push(to: str) -> None: ...

    handle = push.using(expires=600).enqueue("ann")
    hawser_app.advance(601)
    hawser_app.drain()
    assert hawser_app.get(handle.id).state is State.CANCELLED
    with pytest.raises(JobFailed, match="expired"):
        handle.result()


class Counted:
    """A store that has so many jobs to cancel."""

    def __init__(self, left: int) -> None:
        self.left = left

    async def expire(self, limit: int) -> int:
        count = min(limit, self.left)
        self.left -= count
        return count


async def test_upkeep_goes_on_at_once_while_there_are_more():
    expirer = Expirer(Counted(EXPIRED_PER_STEP + 1))
    assert await expirer.turn() == BETWEEN_STEPS_S
    assert EXPIRE_EVERY_S / 2 <= await expirer.turn() <= EXPIRE_EVERY_S
