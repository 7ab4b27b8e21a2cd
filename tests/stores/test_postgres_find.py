"""A search in pages on PostgreSQL, whose jobs lie in several tables."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from hawser.job import NewJob, State
from hawser.outcome import Dead, Done, Failure, Released
from hawser.store import Actor, Filter, Settlement, Share
from hawser.stores.postgres import PostgresStore, queries, search
from hawser.stores.postgres.search import Search
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    url = with_schema(server(versions()[0]), own_schema())
    await emptied(url)
    store = postgres(url)
    await store.open()
    yield store
    await store.close()


async def test_a_search_past_its_bound_leaves_out_no_job_of_another_table(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    """Matches in one table must not carry the cursor past jobs of another that were not looked at yet."""
    for module in (queries, search):
        monkeypatch.setattr(module, "SCAN", 5)
    old = [NewJob(task="t", body=b"{}", tags=("x",)) for _ in range(8)]
    await store.enqueue(old)
    claimed = await store.claim([Share("default")], 8, "w", 60)
    outcomes = (Dead(Failure("no")), Done())
    await store.settle([Settlement(job.id, job.lease, outcomes[n % 2]) for n, job in enumerate(claimed)])
    live = [NewJob(task="t", body=b"{}", queue="live", tags=("x",)) for _ in range(4)]
    await store.enqueue(live)
    await store.enqueue([NewJob(task="t", body=b"{}", queue="live") for _ in range(7)])
    found: list[str] = []
    after = None
    while True:
        page = await store.find(Filter(tag="x"), after, 3)
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break
    assert found == sorted((job.id for job in [*old, *live]), reverse=True)


async def some_of_each(store: PostgresStore) -> None:
    """Jobs in each state, in two queues and of three tasks."""
    for _ in range(3):
        await store.enqueue(
            [
                NewJob(task=f"t{n % 3}", queue=f"q{n % 2}", body=b"{}", tags=("x",) if n % 5 == 0 else (), key=None)
                for n in range(12)
            ]
        )
        claimed = await store.claim([Share("q0"), Share("q1")], 8, "w", 60)
        ends = (Done(), Dead(Failure("no")), Dead(Failure("no")))
        await store.settle([Settlement(job.id, job.lease, ends[n % 3]) for n, job in enumerate(claimed[:6])])
        await store.discard([claimed[2].id], Actor("me"))


async def test_few_and_many_are_found_alike(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    await some_of_each(store)
    filters = [
        Filter(**({"state": state} if state else {}), queue=queue, task=task, tag=tag)
        for state in (None, *State)
        for queue in (None, "q0", "none")
        for task in (None, "t1", "none")
        for tag in (None, "x")
    ]

    async def found() -> list[list[str]]:
        return [[job.id for job in (await store.find(filter, None, 100)).jobs] for filter in filters]

    few = await found()
    assert any(few)
    monkeypatch.setattr(search, "SORTED_UP_TO", -1)
    assert await found() == few


async def test_a_filter_whose_lanes_hold_nothing_looks_at_nothing(store: PostgresStore):
    await some_of_each(store)
    for filter in (Filter(queue="none"), Filter(task="none", state=State.DONE), Filter(queue="q1", task="none", tag="x")):
        page = await store.find(filter, None, 10)
        assert (page.jobs, page.next, page.searched) == ([], None, 0)


def read_or_sorted(plan: dict[str, Any]) -> float:
    """The most rows that one step of a plan gave on to the next."""
    mine = float(plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * float(plan["Actual Loops"])
    return max([mine, *(read_or_sorted(part) for part in plan.get("Plans", []))])


@pytest.mark.parametrize(
    "filter", [Filter(), Filter(state=State.READY), Filter(queue="q"), Filter(tag="x"), Filter(argument="a=1")]
)
async def test_a_page_reads_no_more_jobs_than_it_gives(store: PostgresStore, filter: Filter, monkeypatch: pytest.MonkeyPatch):
    """A page that sorted all it might look at would cost the same for one job as for thousands."""
    monkeypatch.setattr(search, "SORTED_UP_TO", -1)
    await store.enqueue([NewJob(task="t", queue="q", body=b"{}", tags=("x",), index=("a=1", "b=2")) for _ in range(3_000)])
    line = store.server.connection("operate")
    for table in ("job", "done", "failed"):
        await line.rows(f"analyze {store.address.schema}.{table}")
    view = await store.catalog.read(line)
    asked: list[tuple[str, tuple[Any, ...]]] = []

    class Recorder:
        async def fetch(self, sql: str, *values: Any) -> Any:
            asked.append((sql, values))
            return await line.rows(sql, *values)

    look: Any = Search(store.server.sql, filter, view, None).look("ffffffff-ffff-ffff-ffff-ffffffffffff", 5)
    rows, _, _ = await look(Recorder())
    assert len(rows) == 6
    sql, values = asked[-1]
    [(plan,)] = await line.rows(f"explain (analyze, format json) {sql}", *values)
    assert read_or_sorted(json.loads(plan)[0]["Plan"]) <= 20


async def many_that_ended(store: PostgresStore, many: int) -> list[str]:
    """Two jobs that run, claimed before and behind many that were claimed and done since; both have been claimed twice."""
    running = []
    for part in (1, many, 1):
        ids = [NewJob(task="t", queue="q", body=b"{}") for _ in range(part)]
        await store.enqueue(ids)
        claimed = await store.claim([Share("q")], part, "w", 60)
        if part == 1:
            await store.settle([Settlement(job.id, job.lease, Released()) for job in claimed])
            running += [job.id for job in await store.claim([Share("q")], 1, "w", 60)]
        else:
            await store.settle([Settlement(job.id, job.lease, Done()) for job in claimed])
    return running


async def test_running_jobs_are_found_among_many_that_were_claimed_and_have_ended(store: PostgresStore):
    running = await many_that_ended(store, 20)
    await store.enqueue([NewJob(task="t", queue="q", body=b"{}") for _ in range(5)])
    for filter in (Filter(), Filter(queue="q"), Filter(queue="q", task="t")):
        page = await store.find(msgspec.structs.replace(filter, state=State.RUNNING), None, 10)
        assert [job.id for job in page.jobs] == sorted(running, reverse=True)
        assert page.next is None
    first = await store.find(Filter(state=State.RUNNING), None, 1)
    rest = await store.find(Filter(state=State.RUNNING), first.next, 1)
    assert [job.id for job in (*first.jobs, *rest.jobs)] == sorted(running, reverse=True)
    assert not (await store.find(Filter(state=State.RUNNING, queue="none"), None, 10)).jobs
    assert not (await store.find(Filter(state=State.RUNNING, tag="x"), None, 10)).jobs


async def test_running_jobs_are_found_without_looking_at_all_that_ended(store: PostgresStore):
    """They stand in the oldest claims and in the newest; what was claimed between has ended, mostly."""
    await many_that_ended(store, 2_000)
    line = store.server.connection("operate")
    await line.rows(f"analyze {store.address.schema}.job")
    [(plan,)] = await line.rows(f"explain (analyze, format json) {store.server.sql['running']}", None, 2)
    assert read_or_sorted(json.loads(plan)[0]["Plan"]) <= 20


async def test_groups_of_dead_jobs_are_read_at_their_ends(store: PostgresStore):
    """Not all dead jobs by their ids, until one of the group comes."""
    for error in ("TimeoutError: no", "ValueError: no", "KeyError: no"):
        await store.enqueue([NewJob(task="t", queue="q", body=b"{}") for _ in range(700)])
        claimed = await store.claim([Share("q")], 700, "w", 60)
        await store.settle([Settlement(job.id, job.lease, Dead(Failure(error))) for job in claimed])
    line = store.server.connection("operate")
    await line.rows(f"analyze {store.address.schema}.failed")
    assert [group.count for group in (await store.dead_groups(None, None, 10)).groups] == [700, 700, 700]
    rows = await line.rows(f"explain (analyze, format json) {store.server.sql['dead_groups']}", None, None, 11, " ", 400)
    assert read_or_sorted(json.loads(rows[0][0])[0]["Plan"]) <= 50


async def paged(store: PostgresStore, filter: Filter) -> tuple[list[str], int]:
    """All jobs that match, and how many were looked at."""
    found, searched, after = [], 0, None
    while True:
        page = await store.find(filter, after, 20)
        found += [job.id for job in page.jobs]
        searched += page.searched
        if page.next is None:
            return found, searched
        after = page.next


async def test_a_rare_tag_is_found_without_a_look_at_the_others(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    """The index of tags tells, in every table; a tag that many have is looked for among the newest."""
    for module in (search, queries):
        monkeypatch.setattr(module, "SCAN", 5)
    rare = [NewJob(task="t", body=b"{}", tags=("x", "y")) for _ in range(9)]
    await store.enqueue(rare)
    claimed = await store.claim([Share("default")], 9, "w", 60)
    ends = [Done()] * 3 + [Dead(Failure("x"))] * 3 + [Released()] * 3
    await store.settle([Settlement(job.id, job.lease, end) for job, end in zip(claimed, ends, strict=True)])
    await store.enqueue([NewJob(task="t", body=b"{}", tags=("z",)) for _ in range(40)])
    found, searched = await paged(store, Filter(tag="y"))
    assert found == sorted((job.id for job in rare), reverse=True)
    assert searched == len(rare)
    assert await paged(store, Filter(tag="none")) == ([], 0)
    for state in (State.DONE, State.DEAD, State.READY):
        assert len((await paged(store, Filter(tag="y", state=state)))[0]) == 3
    assert len((await paged(store, Filter(tag="y", task="t")))[0]) == len(rare)
    monkeypatch.setattr(search, "SORTED_UP_TO", 1)
    assert await paged(store, Filter(tag="y")) == (found, 49)
