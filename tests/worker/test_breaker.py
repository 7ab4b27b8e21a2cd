"""The judge of breakers: what opens one, what closes it, and that the probe alone is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from hawser.breaker import Breaker
from hawser.job import Claimed, Job, new_job
from hawser.outcome import Dead, Done, Failed, Failure
from hawser.store import Actor, Retention, Settlement, Share, Store
from hawser.store.breakers import COUNTED_ENDS, BreakerStatus, BreakerVerdict, counted_in
from hawser.store.rollup import EventCount
from hawser.stores import make_store
from hawser.testing import ManualClock
from hawser.upkeep.breaker import BREAKERS_LOOK_EVERY_S, NO_BREAKERS_LOOK_EVERY_S, BreakerJudge
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.redis_servers import kinds, own_store, shared

RULE = Breaker(share=0.8, window=120, least=5, probe_every=60)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def url_of(kind: str, folder: Path) -> str:
    match kind:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{folder}/jobs.db"
        case "postgres":
            url = with_schema(server(versions()[-1]), own_schema())
            await emptied(url)
            return url
        case _:
            return own_store(shared(kinds()[0]))


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    store = make_store(await url_of(request.param, tmp_path), clock=clock)
    await store.open()
    await store.declare_breakers({"pay": RULE})
    yield store
    await store.close()


async def claimed(store: Store, count: int) -> list[Claimed]:
    await store.enqueue([new_job(task="pay", body=b"{}", max_attempts=50) for _ in range(count)])
    return await store.claim([Share("default")], count, "w1", 600)


async def ended(store: Store, jobs: list[Claimed], failures: int) -> None:
    outcomes = [Failed(Failure("OSError: away"), 3600) if n < failures else Done() for n in range(len(jobs))]
    await store.settle([Settlement(job.id, job.lease, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])


async def is_open(store: Store) -> bool:
    assert await BreakerJudge(store).turn() == BREAKERS_LOOK_EVERY_S
    [status] = await store.breakers()
    return status.open


async def test_it_opens_when_the_share_of_at_least_so_many_failed(store: Store) -> None:
    await ended(store, await claimed(store, 4), 4)
    assert not await is_open(store)
    await ended(store, await claimed(store, 2), 0)
    assert not await is_open(store)
    await ended(store, await claimed(store, 4), 4)
    assert await is_open(store)
    [status] = await store.breakers()
    assert (status.failed, status.attempts) == (8, 10)


async def test_failures_of_long_ago_do_not_count(store: Store, clock: ManualClock) -> None:
    await ended(store, await claimed(store, 9), 9)
    clock.advance(200)
    assert not await is_open(store)


async def test_only_the_probe_closes_it(store: Store, clock: ManualClock) -> None:
    under_way = await claimed(store, 3)
    await ended(store, await claimed(store, 9), 9)
    assert await is_open(store)
    await ended(store, under_way, 0)
    assert await is_open(store)
    clock.advance(61)
    [probe] = await claimed(store, 1)
    assert await is_open(store)
    await ended(store, [probe], 1)
    assert await is_open(store)
    clock.advance(61)
    [probe] = await claimed(store, 1)
    await ended(store, [probe], 0)
    assert not await is_open(store)


async def test_what_failed_before_it_closed_does_not_count_again(store: Store, clock: ManualClock) -> None:
    await ended(store, await claimed(store, 9), 9)
    assert await is_open(store)
    counts = await store.event_counts(1, COUNTED_ENDS)
    await store.close_breaker("pay", Actor("ann"), counted_in(counts, "pay", counts[0].minute))
    assert not await is_open(store)
    await ended(store, await claimed(store, 4), 4)
    assert not await is_open(store)
    await ended(store, await claimed(store, 1), 1)
    assert await is_open(store)


async def test_a_probe_whose_job_is_not_kept_closes_it(store: Store, clock: ManualClock) -> None:
    await ended(store, await claimed(store, 9), 9)
    assert await is_open(store)
    clock.advance(61)
    [probe] = await claimed(store, 1)
    await store.settle([Settlement(probe.id, probe.lease, Done(), (), keep=False)])
    assert not await is_open(store)


SHORT = Retention(done=1, dead=1, cancelled=1)


async def with_a_dead_probe(store: Store, clock: ManualClock) -> None:
    await ended(store, await claimed(store, 9), 9)
    assert await is_open(store)
    clock.advance(61)
    [probe] = await claimed(store, 1)
    await store.settle([Settlement(probe.id, probe.lease, Dead(Failure("OSError: away")))])
    clock.advance(2)


async def test_a_dead_probe_that_is_pruned_leaves_it_open(store: Store, clock: ManualClock) -> None:
    await with_a_dead_probe(store, clock)
    assert await is_open(store)
    assert await store.prune(SHORT, {}, 100) == 1
    assert await is_open(store)


async def test_a_dead_probe_that_is_pruned_between_two_looks_leaves_it_open(store: Store, clock: ManualClock) -> None:
    await with_a_dead_probe(store, clock)
    read = store.get

    async def prune_first(id: str) -> Job | None:
        assert await store.prune(SHORT, {}, 100) == 1
        return await read(id)

    with mock.patch.object(store, "get", prune_first):
        assert await is_open(store)


async def test_without_breakers_it_looks_seldom(clock: ManualClock) -> None:
    assert await BreakerJudge(make_store("memory://", clock=clock)).turn() == NO_BREAKERS_LOOK_EVERY_S


async def _any_run_counts(_: BreakerJudge, status: BreakerStatus, counts: Sequence[EventCount]) -> BreakerVerdict | None:
    done = any(each.task == status.task and each.event == "done" for each in counts)
    return BreakerVerdict(task=status.task, revision=status.revision, open=False) if done else None


async def test_a_judge_that_takes_any_run_for_the_probe_is_noticed(store: Store, clock: ManualClock) -> None:
    with mock.patch.object(BreakerJudge, "_closing", _any_run_counts), pytest.raises(AssertionError):
        await test_only_the_probe_closes_it(store, clock)


async def test_what_a_judge_decides_and_what_a_person_does_is_a_line_in_the_log(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    judge, other = BreakerJudge(store), BreakerJudge(store)

    async def lines() -> list[str]:
        for each in (judge, other):
            await each.turn()
        told = [record.getMessage() for record in caplog.records if record.name == "hawser.worker"]
        caplog.clear()
        return told

    assert await lines() == []
    await ended(store, await claimed(store, 10), 9)
    assert await lines() == ["breaker of task pay opened: 90 % of 10 attempts failed"], "the one that opened it"
    clock.advance(61)
    await ended(store, await claimed(store, 1), 0)
    assert await lines() == ["breaker of task pay closed: a probe was done"]
    await store.open_breaker("pay", Actor("ann"))
    assert await lines() == ["breaker of task pay opened by ann, until a person closes it"] * 2
    clock.advance(400)
    await store.close_breaker("pay", Actor("bob"))
    assert await lines() == ["breaker of task pay closed by bob"] * 2
    await store.open_breaker("mail", Actor("ann"))
    assert await lines() == ["breaker of task mail opened by ann, until a person closes it"] * 2
    await store.close_breaker("mail", Actor("bob"))
    assert await lines() == ["breaker of task mail closed by a person"] * 2, "no rule: it is not known any more"
    assert await lines() == []
