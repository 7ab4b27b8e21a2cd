"""Claims over very many lanes, where stores do not read all of each: they take what the memory store takes."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hawser.job import NewJob
from hawser.outcome import Failed, Failure
from hawser.store import Leave, Settlement, Share, Store
from hawser.stores.memory import MemoryStore
from hawser.stores.postgres.contenders import END, most_of_queues, reaches
from hawser.stores.postgres.frontier import FrontierPlace
from hawser.stores.postgres.lane_catalog import CatalogLane, Kind, LaneSource
from hawser.stores.sqlite import SqliteStore
from hawser.testing.clock import ManualClock
from tests.postgres import new_schema, postgres, server, versions, with_schema


def a_job(**fields: Any) -> NewJob:
    return NewJob(**{"task": "work", "body": b"{}", **fields})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        file = SqliteStore(tmp_path / "jobs.db", clock=clock)
        await file.open()
        yield file
        await file.close()
        return
    schema = postgres(with_schema(server(versions()[-1]), new_schema()), clock=clock)
    await schema.open()
    yield schema
    await schema.server.connection("operate").rows(f"drop schema {schema.address.schema} cascade")
    await schema.close()


@pytest.mark.parametrize("seed", range(8))
async def test_claims_over_many_lanes_take_what_the_memory_store_takes(store: Store, clock: ManualClock, seed: int):
    other = MemoryStore(clock=clock)
    await other.open()
    dice = random.Random(seed)
    for _ in range(25):
        jobs = [
            a_job(
                task=f"task{dice.randrange(15)}",
                queue=dice.choice(("default", "second")),
                priority=dice.choice((0, 0, 0, 5)),
                delay=dice.choice((0, 0, 0, 0.2, 3)),
                expires=dice.choice((None, None, 2)),
            )
            for _ in range(dice.randrange(60))
        ]
        for each in (store, other):
            await each.enqueue(jobs)
        clock.advance(dice.choice((0, 0.1, 1)))
        left = tuple(job.id for job in jobs if dice.random() < 0.1)
        limit, room = dice.choice((1, 3, 20, 50)), {f"task{n}": dice.randrange(5) for n in range(15) if dice.random() < 0.3}
        shares = [Share("default", dice.choice((None, 5))), Share("second")]
        steps = dice.randrange(3)
        took = [await _turn(each, shares, limit, room, Leave(jobs=frozenset(left)), steps) for each in (store, other)]
        assert took[0] == took[1]
    await other.close()


async def _turn(store: Store, shares: list[Share], limit: int, room: dict[str, int], leave: Leave, failing: int) -> list[str]:
    """Claim; the first few are to be tried again at once."""
    claimed = await store.claim(shares, limit, "w", 30, room, leave)
    failed = [Settlement(job.id, job.lease, Failed(Failure("no"), after=0.1)) for job in claimed[:failing]]
    await store.settle(failed)
    return [job.id for job in claimed]


def source(number: int, kind: Kind = Kind.FRESH) -> LaneSource:
    return LaneSource(number, kind)


def test_a_claim_reads_on_only_before_the_heads_that_fill_it():
    lanes = {n: CatalogLane(n, "default", f"task{n}", 0) for n in range(100)}
    heads = {source(n): FrontierPlace(n, n) for n in range(100)}
    found = reaches(heads, lanes, [Share("default")], 10, {})
    assert {each.lane for each in found} == set(range(9))
    assert {reach.end for reach in found.values()} == {FrontierPlace(9, 9)}


def test_a_task_of_which_it_may_not_take_all_does_not_bound_it():
    lanes = {n: CatalogLane(n, "default", f"task{n}", 0) for n in range(100)}
    heads = {source(n): FrontierPlace(n, n) for n in range(100)}
    found = reaches(heads, lanes, [Share("default")], 10, {f"task{n}": 5 for n in range(20)})
    assert {each.lane for each in found} == set(range(29))
    assert {reach.merged for each, reach in found.items() if each.lane < 20} == {None}


def test_those_that_had_to_wait_are_read_for_their_own_half():
    lanes = {n: CatalogLane(n, "default", f"task{n}", 0) for n in range(100)}
    heads = {source(n): FrontierPlace(n, n) for n in range(50)}
    heads |= {source(n, Kind.RETRYING): FrontierPlace(n, n) for n in range(50, 55)}
    found = reaches(heads, lanes, [Share("default")], 10, {})
    assert {each.lane for each in found} == {*range(9), *range(50, 55)}
    assert found[source(50, Kind.RETRYING)].end == END


def test_a_queue_gives_what_others_surely_leave():
    shares = [Share("one"), Share("two", 3), Share("three", 0), Share("four", most=1)]
    assert most_of_queues(shares, 10, {"one": 4, "two": 1, "three": 9, "four": 5}) == {
        "one": 10,
        "two": 3 + 4,
        "three": 4,
        "four": 1,
    }
    assert most_of_queues(shares, 10, {"one": 20}) == {"one": 10, "two": 0, "three": 0, "four": 0}
