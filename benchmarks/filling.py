"""A store with millions of jobs within minutes: some are made by the store's own calls, the rest are copies of those rows.

From old to new: jobs that ended, 30,000 dead in six groups among them, then a tenth that waits, of which a few run. The last day
has what happened in each of its minutes, of 50 tasks.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import asyncpg

from hawser import Every, Hawser
from hawser.job import NewJob, State
from hawser.outcome import Dead, Done, Failure
from hawser.schedule.rule import text_of
from hawser.schedule.schedule import Definition, create, plan
from hawser.store import Actor, Beat, Change, Filter, Settlement, Share, Store
from hawser.store.rollup import BUCKETS
from hawser.stores.postgres import PostgresStore
from hawser.stores.tally import KEEP_MINUTES, MINUTE_US

DEAD: Final = 30_000
PARTS: Final = 3
"""Stretches of done jobs, with dead ones between them."""
SEED: Final = 2_000
"""Jobs of each task that are made by calls, to be copied."""
AT_ONCE: Final = 50
"""Copies of all seeds in one transaction."""
RUNNING: Final = 40
RECORDS: Final = 3_000
CHANGES: Final = 20
"""Records of the audit: of one thing, and of 500 jobs each."""
FILLER: Final = Actor("filler", None)
QUEUES: Final = ("mail", "images", "reports")
TASKS: Final = ("send", "resize", "report")
SMALL: Final = tuple(f"small_{number:02}" for number in range(47))
"""Tasks of which little happens, so that there are 50 in all; one job of each has the tag `few`."""
EVENTS: Final = (("enqueued", 100), ("claimed", 100), ("done", 98), ("failed", 2), ("ended:1", 98))


def payload_of(task: str, number: int) -> dict[str, Any]:
    match task:
        case "send":
            return {"user": number % 10_000, "text": "x" * 100}
        case "resize":
            return {"picture": number, "key": "secret"}
        case _:
            return {"day": number}


async def fill(app: Hawser, store: Store, jobs: int, path: Path) -> None:
    copier = await PostgresCopies.to(store) if isinstance(store, PostgresStore) else SqliteCopies(path)
    waiting = jobs // 10
    done = (jobs - waiting - DEAD) // (PARTS * SEED * len(TASKS))
    seeds = await made(app, store)
    await ended(store, seeds, dead=False)
    for _ in range(PARTS):
        await copier.copy("done", seeds, max(0, done - 1))
        await ended(store, await made(app, store, DEAD // PARTS // len(TASKS)), dead=True)
    await copier.copy("ready", await made(app, store), max(0, waiting // (SEED * len(TASKS)) - 1))
    await store.claim([Share(queue) for queue in QUEUES], RUNNING, "w1", 600.0)
    await furnish(app, store)
    await copier.history()
    await copier.close()
    await store.beat([Beat(worker="w1", host="vm", pid=1, version="1", queues=QUEUES, slots=50, running=RUNNING)])


async def furnish(app: Hawser, store: Store) -> None:
    """A batch, a schedule whose ticks have made jobs, the small tasks, a job with a key, and what operators did."""
    await store.enqueue([NewJob(task=SMALL[0], queue="small", body=b"{}", key="one")])
    for first in range(0, RECORDS, 100):
        await asyncio.gather(*(store.note("revoke_key", f"key:{first + number}", FILLER) for number in range(100)))
    waiting = [job.id for job in (await store.find(Filter(state=State.READY), None, 500)).jobs]
    for number in range(CHANGES):
        await store.change(waiting, Change(priority=4 + number % 2), FILLER)
    await store.enqueue([NewJob(task=task, queue="small", body=b"{}", tags=("few",)) for task in SMALL])
    with app.batch("import") as batch:
        for day in range(100):
            batch.add(app.tasks["report"].job(day=day))
    now = (await store.due_schedules(0)).now
    rule = text_of(Every(minutes=1, missed="all"))
    made = create(Definition(name="minutely", rule_text=rule, task="report", queue="small"), now - 50 * MINUTE_US)
    await store.fire([made])
    await store.fire([plan(made.schedule, now)])


async def made(app: Hawser, store: Store, each: int = SEED) -> list[str]:
    ids = []
    for name in TASKS:
        some = [app.tasks[name].job_of((), payload_of(name, number)) for number in range(each)]
        await app.aput(some)
        ids += [job.id for job in some]
    return ids


async def ended(store: Store, ids: Sequence[str], *, dead: bool) -> None:
    left = len(ids)
    while left:
        claimed = await store.claim([Share(queue) for queue in QUEUES], 1_000, "filler", 60.0)
        deaths = [Dead(Failure(f"{name}Error: it died", "Traceback")) for name in "ABCDEF"]
        outcomes = [deaths[n % 6] if dead else Done() for n in range(len(claimed))]
        await store.settle([Settlement(job.id, job.lease, end) for job, end in zip(claimed, outcomes, strict=True)])
        left -= len(claimed)


def happened(now_us: int) -> list[tuple[int, str, str, str, int]]:
    """What the last day had, minute by minute."""
    this = now_us // MINUTE_US
    times = [(f"{kind}:{bucket}", 8) for kind in ("wait", "run") for bucket in range(0, len(BUCKETS), 2)]
    lanes = [(queue, task, (*EVENTS, *times)) for queue, task in zip(QUEUES, TASKS, strict=True)]
    lanes += [("small", task, (*EVENTS[:3], *times[::3])) for task in SMALL]
    return [
        (minute, queue, task, event, count)
        for minute in range(this - KEEP_MINUTES + 1, this - 10)
        for queue, task, counted in lanes
        for event, count in counted
    ]


def first_stamp() -> int:
    """The time as the front of an id has it; a copy adds one for each job before it."""
    return time.time_ns() // 1_000_000 << 12


class SqliteCopies:
    """Writes into the file beside the store, a transaction for some copies."""

    def __init__(self, path: Path) -> None:
        self._con = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
        self._con.execute("pragma synchronous = off")
        self._con.execute("pragma cache_size = -200000")

    async def copy(self, state: str, ids: Sequence[str], copies: int) -> None:
        await asyncio.to_thread(self._copy, state, ids, copies)

    def _copy(self, state: str, ids: Sequence[str], copies: int) -> None:
        con, stamp = self._con, first_stamp()
        columns = ", ".join(row[1] for row in con.execute("pragma table_info(hawser_job)") if row[1] not in ("seq", "id"))
        con.execute("create temp table if not exists seed as select 0 as i, * from hawser_job limit 0")
        con.execute("delete from seed")
        con.executemany("insert into seed select ?, * from hawser_job where id = ?", enumerate(ids))
        depth = "done" if state == "done" else "fresh"
        for first in range(0, copies, AT_ONCE):
            some = min(AT_ONCE, copies - first)
            con.execute("begin immediate")
            con.execute(
                f"""with recursive copies(n) as (select ?1 union all select n + 1 from copies where n + 1 < ?1 + ?2),
                named as materialized (
                    select printf('%015x', ?4 + c.n * ?3 + s.i) as h, c.n * ?3 + s.i as place, s.*
                    from copies as c cross join (select * from seed order by i) as s
                )
                insert into hawser_job (id, {columns})
                select substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7' || substr(h, 13) || '-8000-' || printf('%012x', place),
                    {columns} from named""",
                (first, some, len(ids), stamp),
            )
            con.execute(
                f"""update hawser_depth set {depth} = {depth} + ? * (
                    select count(*) from seed as s where s.queue = hawser_depth.queue and s.task = hawser_depth.task
                        and s.priority = hawser_depth.priority)""",
                (some,),
            )
            con.execute("commit")

    async def history(self) -> None:
        con = self._con
        con.execute("begin immediate")
        con.executemany("insert or ignore into hawser_tally values (?, ?, ?, ?, ?)", happened(time.time_ns() // 1_000))
        con.execute("commit")

    async def close(self) -> None:
        self._con.execute("pragma wal_checkpoint(truncate)")
        self._con.close()


class PostgresCopies:
    """Writes beside the store, a transaction for some copies."""

    def __init__(self, con: asyncpg.Connection, schema: str) -> None:
        self._con, self._schema = con, schema

    @classmethod
    async def to(cls, store: PostgresStore) -> Self:
        con = await asyncpg.connect(store.address.dsn)
        await con.execute("set synchronous_commit = off")
        return cls(con, store.address.schema)

    async def copy(self, state: str, ids: Sequence[str], copies: int) -> None:
        stamp, table = first_stamp(), "done" if state == "done" else "job"
        rows = await self._con.fetch(
            "select attname from pg_attribute where attrelid = $1::text::regclass and attnum > 0 and not attisdropped"
            " and attname not in ('id', 'seq')",
            f"{self._schema}.{table}",
        )
        columns = ", ".join(row[0] for row in rows)
        for first in range(0, copies, AT_ONCE):
            some = min(AT_ONCE, copies - first)
            await self._con.execute(
                f"""with seed as materialized (
                    select w.i - 1 as i, s.* from unnest($1::uuid[]) with ordinality as w(id, i)
                    join {self._schema}.{table} as s using (id)
                ), named as materialized (
                    select lpad(to_hex($2::bigint + n * $3::bigint + s.i), 15, '0') as h, n * $3 + s.i as place, s.*
                    from generate_series($4::bigint, $4 + $5::bigint - 1) as n cross join seed as s order by n, s.i
                ), put as (
                    insert into {self._schema}.{table} (id, {columns})
                    select (left(h, 12) || '7' || right(h, 3) || '8000' || lpad(to_hex(place), 12, '0'))::uuid,
                        {columns} from named
                )
                insert into {self._schema}.counted (minute, lane, name, count)
                select 0, s.lane, $6::text, count(*) * $5 from seed as s group by s.lane""",
                list(ids),
                stamp,
                len(ids),
                first,
                some,
                "@done" if state == "done" else "@fresh",
            )

    async def history(self) -> None:
        minutes, queues, tasks, events, counts = map(list, zip(*happened(time.time_ns() // 1_000), strict=True))
        await self._con.execute(
            f"""insert into {self._schema}.tally (minute, lane, name, count)
            select w.minute, l.id, w.event, w.count
            from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[]) as w(minute, queue, task, event, count)
            join {self._schema}.lane as l on l.queue = w.queue and l.task = w.task on conflict do nothing""",
            *(minutes, queues, tasks, events, counts),
        )

    async def close(self) -> None:
        await self._con.execute("vacuum (analyze)")
        await self._con.close()
