"""Claims of PostgreSQL beside lower priorities: one statement takes them, and the rule is the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from hawser.clock import to_us
from hawser.policy import QueuePolicy
from hawser.stores.postgres import PostgresStore, claims
from hawser.testing.clock import ManualClock
from hawser.testing.contract.ageing import aged_first
from hawser.testing.contract.making import SIGN, a_job, add_many, done, failed, ids, take, write
from hawser.testing.contract.order import WaitingOrder
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=versions())
async def store(request, clock, monkeypatch) -> AsyncIterator[PostgresStore]:
    monkeypatch.setattr(claims, "LOOK_DOWN_EVERY", 600.0)
    url = with_schema(server(request.param), own_schema())
    await emptied(url)
    store = postgres(url, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def asked(store) -> Counter[str]:
    """The statements of claims, counted."""
    line, names = store.server.connection("claim"), {text: name for name, text in store.server.sql.items()}
    rows, found = line.rows, Counter[str]()

    async def counted(sql, *arguments, **options):
        found[names[sql]] += 1
        return await rows(sql, *arguments, **options)

    line.rows = counted
    return found


async def test_a_claim_beside_what_has_aged_is_one_statement(store, clock, asked):
    for task in ("one", "other"):
        await store.enqueue([a_job(task=task, priority=0) for _ in range(20)])
    clock.advance(700)
    await add_many(store, 400, priority=9)
    await take(store, 10)
    asked.clear()
    for _ in range(10):
        assert Counter(claimed.priority for claimed in await take(store, 10)) == {9: 9, 0: 1}
    assert asked == {"take_with_aged": 10}


async def test_a_claim_beside_a_lower_priority_that_has_not_aged_is_one_statement(store, clock, asked):
    await store.set_policy("default", QueuePolicy(ageing=None), SIGN)
    await add_many(store, 20, priority=0)
    clock.advance(700)
    await add_many(store, 400, priority=9)
    await take(store, 10)
    asked.clear()
    for _ in range(10):
        assert {claimed.priority for claimed in await take(store, 10)} == {9}
    assert asked == {"take": 10}


async def test_places_that_the_highest_priority_leaves_are_filled_from_lower_ones(store, clock):
    await add_many(store, 20, priority=5)
    await add_many(store, 20, priority=0)
    clock.advance(700)
    await add_many(store, 25, priority=9)
    found = [Counter(claimed.priority for claimed in await take(store, 20)) for _ in range(4)]
    assert found == [{9: 18, 5: 2}, {9: 7, 5: 13}, {5: 5, 0: 15}, {0: 5}]


async def test_what_comes_to_wait_beside_the_leading_source_is_not_passed_over(store, clock):
    await add_many(store, 5, priority=0)
    await add_many(store, 100, priority=5)
    assert {claimed.priority for claimed in await take(store, 10)} == {5}
    [urgent] = await add_many(store, 1, priority=9)
    assert urgent in ids(await take(store, 10))
    [retried, *_] = await take(store, 10)
    await write(store, failed(retried))
    clock.advance(60)
    assert retried.id in ids(await take(store, 10)), "half of the places go to those that are overdue"


@pytest.mark.parametrize("seed", range(4))
async def test_a_long_random_history_with_a_leading_source_is_claimed_in_the_order_of_the_rule(store, clock, asked, seed):
    dice = random.Random(seed)  # no secret: a history that can be repeated
    waiting: dict[str, WaitingOrder] = {}
    order = 0
    for turn in range(80):
        top = dice.choice([0, 0, 0, 20, 40])
        jobs = [a_job(priority=9) for _ in range(top)]
        jobs += [a_job(task=dice.choice(["a", "b"]), priority=dice.choice([0, 3, 5])) for _ in range(dice.choice([0, 0, 3]))]
        await store.enqueue(jobs)
        for job in jobs:
            order += 1
            waiting[job.id] = WaitingOrder(job.id, job.priority, clock.now(), order, fresh=True)
        clock.advance(round(dice.uniform(1, 100), 6))
        limit = dice.randint(1, 12)
        expected = aged_first(list(waiting.values()), limit, turn, clock.now())
        found = await take(store, limit)
        assert ids(found) == expected, f"claim {turn}"
        for claimed in found:
            old = waiting.pop(claimed.id)
            if dice.random() < 0.95:
                await write(store, done(claimed))
            else:
                after = round(dice.uniform(0.01, 30), 6)
                await write(store, failed(claimed, after))
                waiting[old.id] = old._replace(run_at=clock.now() + to_us(after), fresh=False)
    assert asked["take_with_aged"] > 5
    assert asked["take"] > 20
