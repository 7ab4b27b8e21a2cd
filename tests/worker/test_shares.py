"""What queues with weights get over time, whatever the sizes of the claims and whoever has nothing to do."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hawser.job import Claimed
from hawser.store import Share
from hawser.worker.demand import Shares
from hawser.worker.options import QueueWeight

WEIGHTS = st.lists(st.integers(1, 20), min_size=2, max_size=5)
PLACES = st.lists(st.integers(1, 300), min_size=1, max_size=10)


def claim(shares: list[Share], places: int, full: set[str], waiting: Counter[str]) -> list[Claimed]:
    """As a store does it: each its share in turn, then the rest in turn. Queues that are full never run dry."""
    taken: Counter[str] = Counter()
    for limit in ({share.queue: share.places or 0 for share in shares}, {share.queue: places for share in shares}):
        for queue, most in limit.items():
            there = places if queue in full else waiting[queue] - taken[queue]
            taken[queue] += max(0, min(most, there, places - taken.total()))
    waiting.subtract({queue: count for queue, count in taken.items() if queue not in full})
    return [_job(queue) for queue in taken.elements()]


def _job(queue: str) -> Claimed:
    facts: dict[str, Any] = {
        "priority": 0,
        "attempt": 1,
        "max_attempts": 5,
        "timeout": 1.0,
        "lease": 1,
        "run_at_us": 0,
        "enqueued_at_us": 0,
    }
    return Claimed(id="", task="work", queue=queue, body=b"{}", **facts)


@settings(deadline=None)
@given(WEIGHTS, PLACES, st.data())
def test_full_queues_share_what_empty_ones_leave_by_their_weights(weights, sizes, data):
    names = [f"q{n}" for n in range(len(weights))]
    full = data.draw(st.sets(st.sampled_from(names), min_size=1))
    shares = Shares([QueueWeight(name, weight) for name, weight in zip(names, weights, strict=True)])
    done: Counter[str] = Counter()
    while done.total() < 3_000:
        for places in sizes:
            claimed = claim(shares.of(places), places, full, Counter())
            assert len(claimed) == places
            shares.took(claimed)
            done.update(job.queue for job in claimed)
    total = sum(weight for name, weight in zip(names, weights, strict=True) if name in full)
    for name, weight in zip(names, weights, strict=True):
        if name in full:
            assert abs(done[name] - done.total() * weight / total) <= 2 * max(sizes) + len(names)


@settings(deadline=None)
@given(PLACES, st.integers(1, 1_000))
def test_a_queue_that_was_empty_for_long_gets_its_share_and_no_more(sizes, long):
    shares = Shares([QueueWeight("busy", 3), QueueWeight("quiet", 1)])
    for _ in range(long):
        shares.took(claim(shares.of(10), 10, {"busy"}, Counter()))
    done: Counter[str] = Counter()
    while done.total() < 2_000:
        for places in sizes:
            claimed = claim(shares.of(places), places, {"busy", "quiet"}, Counter())
            shares.took(claimed)
            done.update(job.queue for job in claimed)
    assert abs(done["quiet"] - done.total() / 4) <= 2 * max(*sizes, 10) + 2


@settings(deadline=None)
@given(WEIGHTS, st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=300), st.data())
def test_idle_times_do_not_cost_anybody_its_share(weights, turns, data):
    """A worker with few places and little to do, and then all queues are full."""
    names = [f"q{n}" for n in range(len(weights))]
    shares = Shares([QueueWeight(name, weight) for name, weight in zip(names, weights, strict=True)])
    waiting: Counter[str] = Counter()
    for places, coming in turns:
        waiting.update(data.draw(st.lists(st.sampled_from(names), min_size=coming, max_size=coming)))
        shares.took(claim(shares.of(places), places, set(), waiting))
    done: Counter[str] = Counter()
    for _ in range(1_000):
        claimed = claim(shares.of(1), 1, set(names), Counter())
        shares.took(claimed)
        done.update(job.queue for job in claimed)
    for name, weight in zip(names, weights, strict=True):
        assert abs(done[name] - 1_000 * weight / sum(weights)) <= 12
