"""The statements of the hot path read by an index from a known place, whatever the planner knows of the tables."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import asyncpg
import pytest

from hawser.batch import NewBatch, new_batch
from hawser.job import NewJob
from hawser.outcome import Snoozed
from hawser.store import Leave, Settlement, Share
from hawser.stores.dependencies import FAR
from hawser.stores.postgres import PostgresStore
from hawser.stores.postgres.server import SESSION_SETTINGS
from hawser.value.ids import new_id
from tests.postgres import new_schema, postgres, server, versions, with_schema

TABLES = ("job", "done", "failed", "attempt", "held", "schedule", "group")
SIZES = {"empty": 0, "one": 1, "million": 1_000_000}

FILL = """
insert into {schema}.job (id, lane, body, run_at, enqueued_at, max_attempts, timeout, kind)
select (lpad(to_hex(g), 12, '0') || '7000800000000000' || lpad(to_hex(g % 16), 4, '0'))::uuid, 1, '{{}}', g, g, 5, 300, 0
from generate_series(1, {size}) as g"""

ARGUMENTS = {
    "peek": (None, 1, [1], [0], [0], [0], 400, 2**62, []),
    "peek_further": (None, 1, [1], [0], [0], [0], [2**62], [2**62], [400], [1], 400, 2**62, []),
    "take": (None, 1, [1, 1], [0, 1], [0, 0], [0, 0], [400, 0], "w", 30_000_000, 5_000_000, 2**62, []),
    "take_with_aged": (
        *(None, 1, [1, 1, 2], [0, 1, 0], [0, 0, 0], [0, 0, 0], [400, 0, None], "w", 30_000_000, 5_000_000, 2**62, []),
        *([None, None, 0], 40, 600_000_000),
    ),
    "finish": (None, [new_id() for _ in range(400)], False, [1] * 400, None, [b"1"] * 400),
    "finish_plain": (None, sorted(new_id() for _ in range(400)), False, [1] * 400, None),
    "held": ([new_id() for _ in range(400)], [1] * 400),
    "leave": (
        *(
            None,
            False,
            [new_id()],
            [1],
            [False],
            ["ready"],
            [3],
            [0],
            [1],
            [0],
            [None],
            ["failed"],
            [True],
            [False],
            ["failed"],
            ["no"],
        ),
        *([None], [1], [None], FAR),
    ),
    "extend": (None, [new_id() for _ in range(400)], [1] * 400, [None] * 400, 30_000_000, 5_000_000),
    "expired": (None, 100, 0),
    "look_later": (None, 0),
    "standing": ([new_id()], 20_000, None),
    "make_due": (None, 0, [1, 1], [2, 3], 2**62),
    "make_fresh_due": (None, [1, 1], [0, 1], 2_000),
    "behind": (None, [1], [0], [0], [0], [2**62], [0], []),
    "next_due": (None, [1], [0], [0], [0], []),
    "due_schedules": (None, 501),
    "forget_groups": (None, 1, "a", 20_000),
    "dead_letters": (new_id(), None, " ", 400, 1_001),
    "depths_and_heads": (None, None, 0),
    "figures": (None, None, 10_000, 60, 5),
    "queue_figures": (None, "q", 10_000, 60, 5),
}


@pytest.fixture(scope="module", params=versions())
def database(request):
    return server(request.param)


@pytest.fixture
async def store(database):
    store = postgres(with_schema(database, new_schema()))
    await store.open()
    yield store
    await store.server.connection("operate").rows(f"drop schema {store.address.schema} cascade")
    await store.close()


def read_through(plan: dict[str, Any]) -> list[str]:
    """The tables of the hot path that a plan reads from end to end, be it by way of an index."""
    table = plan.get("Relation Name", "")
    known = "Index Cond" in plan or "TID Cond" in plan
    reads = plan["Node Type"] not in ("ModifyTable", "LockRows") and table.partition("_")[0] in TABLES and not known
    found = [f"{plan['Node Type']} of {table}"] if reads else []
    return found + [name for part in plan.get("Plans", []) for name in read_through(part)]


async def explained(store: PostgresStore) -> dict[str, list[str]]:
    con = await asyncpg.connect(store.address.dsn, server_settings=dict(SESSION_SETTINGS))
    found = {}
    try:
        for name, arguments in ARGUMENTS.items():
            rows = await con.fetch(f"explain (format json) {store.server.sql[name]}", *arguments)
            found[name] = read_through(json.loads(rows[0][0])[0]["Plan"])
    finally:
        await con.close()
    return found


@pytest.mark.parametrize("size", SIZES)
async def test_no_statement_of_the_hot_path_reads_a_table_through(store, size):
    """Without ANALYZE, as it is right after a bulk load."""
    schema = store.address.schema
    await store.server.connection("operate").rows(f"alter table {schema}.job set (autovacuum_enabled = off)")
    await store.server.connection("operate").rows(FILL.format(schema=schema, size=SIZES[size]))
    assert await explained(store) == {name: [] for name in ARGUMENTS}


async def test_a_table_that_was_empty_when_it_was_analyzed_is_not_read_through(store):
    """The planner then takes it for empty, however many pages it has: seen to cost three quarters of the rate."""
    schema, line = store.address.schema, store.server.connection("operate")
    await line.rows(f"alter table {schema}.job set (autovacuum_enabled = off)")
    await line.rows(FILL.format(schema=schema, size=100_000))
    await line.rows(f"delete from {schema}.job")
    for table in ("job", "attempt", "held_key", "failed", "done"):
        await line.rows(f"analyze {schema}.{table}")
    assert await explained(store) == {name: [] for name in ARGUMENTS}


def read_of(table: str, plan: dict[str, Any]) -> float:
    """How many rows of a table a plan has read."""
    mine: float = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if plan.get("Relation Name") == table else 0
    return mine * float(plan["Actual Loops"]) + sum(read_of(table, part) for part in plan.get("Plans", []))


async def test_the_figures_of_a_queue_cost_the_same_whatever_happened_to_the_others(store):
    """All that had happened anywhere in an hour was sent over, and then a statement for each queue."""
    line, asked = store.server.connection("read"), []
    rows = line.rows

    async def counted(sql: str, *arguments: Any, **options: Any) -> Any:
        found = await rows(sql, *arguments, **options)
        asked.append((sql, arguments, len(found)))
        return found

    async def cost(queues: int) -> tuple[float, int, int]:
        await store.enqueue([NewJob(task="work", body=b"{}", queue=f"q{n}") for n in range(queues)])
        await line.rows(
            f"insert into {store.address.schema}.tally select floor(extract(epoch from now()) / 60) - ago, l.id, name, 1 "
            f"from {store.address.schema}.lane as l, generate_series(1, 30) as ago, unnest(array['done', 'ended:1']) as name "
            "on conflict do nothing"
        )
        await store.queues()  # It knows the lanes from now on.
        asked.clear()
        line.rows = counted
        try:
            assert len(await store.queues()) == queues
            for_all = len(asked)
            asked.clear()
            await store.stats("q0")
        finally:
            line.rows = rows
        read = 0.0
        for sql, arguments, _ in asked:
            [(plan,)] = await line.rows(f"explain (analyze, format json) {sql}", *arguments)
            read += read_of("tally", json.loads(plan)[0]["Plan"])
        return read, sum(shipped for _, _, shipped in asked), for_all

    read, *rest = await cost(3)
    assert read > 30
    read_of_more, *rest_of_more = await cost(40)
    assert read_of_more <= read + 10, "a minute may have passed, and no more"
    assert rest_of_more == rest


def scanned(plan: dict[str, Any]) -> float:
    """Rows of jobs that a plan read, also those that it left out."""
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    inner = sum(scanned(part) for part in plan.get("Plans", []))
    return (own if plan.get("Relation Name") == "job" else 0) + inner


async def test_claims_do_not_step_over_declined_jobs_for_ever(store, monkeypatch):
    line, next_due = store.server.connection("read"), store.server.sql["next_due"]
    await store.enqueue([NewJob(task="work", body=b"{}") for _ in range(300)])
    runs = await store.claim([Share("default")], 300, "old", 60)
    await store.settle([Settlement(run.id, run.lease, Snoozed(0.0, "declined")) for run in runs])
    leave = Leave(jobs=frozenset(run.id for run in runs))

    async def read() -> float:
        """Rows that a claim reads, by the statement that reads as a claim does and changes nothing."""
        asked: list[tuple[Any, ...]] = []
        rows = line.rows

        async def noted(sql: str, *arguments: Any, **options: Any) -> Any:
            if sql == next_due:  # sweeps are sent there, too
                asked.append(arguments)
            return await rows(sql, *arguments, **options)

        assert await store.claim([Share("default")], 10, "old", 60, {}, leave) == []
        with monkeypatch.context() as patch:
            patch.setattr(line, "rows", noted)
            await store._claims.due_in(["default"], leave)
        [(plan,)] = await line.rows(f"explain (analyze, format json) {next_due}", *asked[-1])
        return scanned(json.loads(plan)[0]["Plan"])

    assert await read() >= 300, "at first it has to"
    async with asyncio.timeout(20):
        while await read() > 10:
            await asyncio.sleep(0.02)
    await asyncio.sleep(1.2)  # what is measured: the sweep of every second does not lead back to them
    assert await read() <= 10
    [found] = await store.claim([Share("default")], 10, "old", 60, {}, Leave(jobs=leave.jobs - {runs[7].id}))
    assert found.id == runs[7].id


async def test_a_claim_leaves_each_row_on_its_page(store):
    """Else it would have to write every index of the table, for a row that is soon gone."""
    await store.enqueue([NewJob(task="work", body=b'{"seq":12345,"to":"user@example.com"}') for _ in range(2_000)])
    worker = "a-host-with-a-name-of-some-length.example.com:12345:1"
    for _ in range(5):
        assert len(await store.claim([Share("default")], 400, worker, 60)) == 400
    line, name = store.server.connection("claim"), f"{store.address.schema}.job"
    updated = "select pg_stat_get_xact_tuples_updated($1::regclass) + pg_stat_get_tuples_updated($1::regclass)"
    moved = updated.replace("tuples_updated", "tuples_hot_updated")
    async with asyncio.timeout(10):
        while await line.value(updated, name) < 2_000:
            await asyncio.sleep(0.2)
    assert await line.value(moved, name) == 2_000


INDEXES = """
select pg_get_indexdef(i.indexrelid) from pg_index as i join pg_class as t on t.oid = i.indrelid
join pg_namespace as n on n.oid = t.relnamespace where n.nspname = $1 and t.relname = 'job'"""
CHANGED_BY_CLAIMS = re.compile(r"\b(running|lease\w*|attempt\w*|worker|granted)\b")


async def indexes_that_end_heap_only_claims(con: asyncpg.Connection, schema: str) -> list[str]:
    found = [row[0].partition(" USING ")[2] for row in await con.fetch(INDEXES, schema)]
    assert found
    return [text for text in found if CHANGED_BY_CLAIMS.search(text)]


@pytest.mark.parametrize("version", versions())
async def test_no_index_of_jobs_names_what_a_claim_changes(version):
    """Also not in its `where`: an update of such a column is not heap-only, and every claim would write to all indexes."""
    store = postgres(with_schema(server(version), new_schema()))
    await store.open()
    schema, con = store.address.schema, await asyncpg.connect(store.address.dsn)
    try:
        assert await indexes_that_end_heap_only_claims(con, schema) == []
        for index in ("(id) where running", "(lane, lease_until)", "(worker)"):
            async with con.transaction():
                await con.execute(f"create index forbidden on {schema}.job {index}")
                [told] = await indexes_that_end_heap_only_claims(con, schema)
                assert told
                await con.execute(f"drop index {schema}.forbidden")
    finally:
        await con.close()
        await store.close()


async def test_the_running_members_of_a_large_batch_are_counted_by_what_runs_or_by_its_members_whichever_is_less(store):
    """All members were read once, and each looked for in the ids of its claim: 244 ms of 100,000 members."""
    line, schema = store.server.connection("operate"), store.address.schema
    batch, small = new_batch(name="large"), new_batch(name="small")
    for each, members in ((batch, 4_000), (small, 1_100)):
        await store.open_batch(each)
        await store.enqueue([NewJob(task="work", body=b"{}", queue=each.name, batch=each.id) for _ in range(members)])
    for each in (batch, small):
        assert len(await store.claim([Share(each.name)], 50, "w1", 60)) == 50

    async def read(*batches: NewBatch) -> tuple[list[int], int]:
        """What is said to run, and how many hundreds of rows were read: a plan gives the mean of many looks, rounded."""
        asked = None, "f" * 32, [each.id for each in batches], 10, 1_000
        counts = [found.running for each in batches if (found := await store.batch(each.id)) is not None]
        [(plan,)] = await line.rows(f"explain (analyze, format json) {store.server.sql['batches']}", *asked)
        return counts, 100 * round(scanned(json.loads(plan)[0]["Plan"]) / 100)

    assert await read(batch, small) == ([50, 50], 100)
    assert await read(small) == ([50], 100)
    ids = "array(select gen_random_uuid() from generate_series(1, 1000))"
    ended = f"insert into {{}}.granted select -n, 0, {ids} from generate_series({{}}) as n"
    await line.rows(ended.format(schema, "1, 2"))
    assert await read(batch, small) == ([50, 50], 100), "what claims gave out is less than what has not ended"
    assert await read(small) == ([50], 1_100), "members are less"
    await line.rows(ended.format(schema, "11, 18"))
    assert await read(batch, small) == ([50, 50], 5_100)
