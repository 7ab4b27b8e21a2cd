"""Physical designs of a queue on PostgreSQL, side by side: what a job costs the server, in time and in log.

    python benchmarks/postgres_designs.py postgresql://… [--jobs 100000] [--batch 400]

One client, no handler: jobs go in, are claimed and settled in batches, as the designs' own SQL. With a snapshot held open
elsewhere (`held`) it shows what a claim costs when nothing can be vacuumed. Works in a schema of its own and drops it.
"""

import argparse
import asyncio
import json
import time

import asyncpg

from hawser.value.ids import new_id

COMMON = "id uuid not null, queue text not null, task text not null, body bytea not null, priority smallint not null, run_at bigint not null, attempt int not null default 0, lease bigint not null default 0, lease_until bigint, worker text"
NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"

DESIGNS = {
    # State in partial indexes; a finished job stays in the table as a row in another state.
    "one table, states": {
        "make": f"""
            create table d.job ({COMMON}, state "char" not null default 'r', finished_at bigint, primary key (id)) with (fillfactor = 80);
            create index on d.job (queue, priority desc, run_at, id) where state = 'r';
            create index on d.job (lease_until) where state = 'l';""",
        "put": "insert into d.job (id, queue, task, body, priority, run_at) select i, 'default', 'noop', b, 5, {now} from unnest($1::uuid[], $2::bytea[]) as u(i, b)",
        "claim": """with head as materialized (select id from d.job where state = 'r' and run_at <= {now} and queue = 'default'
                order by priority desc, run_at, id limit $1 for update skip locked)
            update d.job as j set state = 'l', attempt = attempt + 1, lease = lease + 1, lease_until = {now} + 30000000, worker = 'w'
            from head where j.id = head.id returning j.id, j.body, j.run_at""",
        "settle": "update d.job set state = 'd', finished_at = {now} where id = any($1) and state = 'l' and lease_until > {now}",
    },
    # As above, but a finished job moves to a history table.
    "states, history apart": {
        "make": f"""
            create table d.job ({COMMON}, state "char" not null default 'r', primary key (id)) with (fillfactor = 80);
            create index on d.job (queue, priority desc, run_at, id) where state = 'r';
            create index on d.job (lease_until) where state = 'l';
            create table d.done ({COMMON}, finished_at bigint); create index on d.done (id);""",
        "settle": """with gone as (delete from d.job where id = any($1) and state = 'l' and lease_until > {now} returning *)
            insert into d.done select id, queue, task, body, priority, run_at, attempt, lease, lease_until, worker, {now} from gone""",
    },
    # The claim changes no indexed column; leases are found by the claim that gave them.
    "claim in place, history apart": {
        "make": f"""
            create sequence d.s;
            create table d.job ({COMMON}, seq bigint generated always as identity, lane int not null default 1, running boolean not null
                default false, granted bigint, primary key (id)) with (fillfactor = 60);
            create index on d.job (lane, run_at, seq);
            create table d.granted (id bigint primary key, look_at bigint, jobs uuid[]);
            create table d.done ({COMMON}, finished_at bigint); create index on d.done (id);""",
        "claim": """with head as materialized (select j.ctid as tid from d.job as j where j.lane = 1 and j.run_at <= {now} and not running
                and j.run_at >= $2 order by j.run_at, j.seq limit $1 for update skip locked),
            taken as (update d.job as j set running = true, attempt = attempt + 1, lease = lease + 1, lease_until = {now} + 30000000,
                worker = 'w', granted = 1 where j.ctid = any (array(select tid from head)) returning j.id, j.body, j.run_at),
            g as (insert into d.granted select nextval('d.s'), {now}, array_agg(id) from taken)
            select * from taken""",
        "settle": """with gone as (delete from d.job where id = any($1) and running and lease_until > {now} returning *)
            insert into d.done select id, queue, task, body, priority, run_at, attempt, lease, lease_until, worker, {now} from gone""",
    },
}
for _design in DESIGNS.values():
    for _part in ("put", "claim"):
        _design.setdefault(_part, DESIGNS["one table, states"][_part])


async def run(dsn, design, jobs, batch, *, held, frontier):
    con = await asyncpg.connect(dsn)
    holder = await asyncpg.connect(dsn)
    await con.execute("drop schema if exists d cascade; create schema d; " + design["make"])
    sql = {name: await con.prepare(design[name].format(now=NOW)) for name in ("put", "claim", "settle")}
    if held:
        await holder.execute("begin isolation level repeatable read; select 1 from d.job limit 1")
    before = await con.fetchval("select pg_current_wal_lsn()")
    bodies = [b'{"seq": %d, "to": "user@example.com"}' % n for n in range(batch)]
    spent = dict.fromkeys(("put", "claim", "settle"), 0.0)
    claims, first = [], 0

    async def timed(name, *arguments):
        began = time.perf_counter()
        rows = await sql[name].fetch(*arguments)
        spent[name] += time.perf_counter() - began
        return rows

    done = 0
    while done < jobs:
        for _ in range(10):
            await timed("put", [new_id() for _ in range(batch)], bodies)
        for _ in range(10):
            began = time.perf_counter()
            rows = await timed("claim", batch, first) if frontier else await timed("claim", batch)
            claims.append(time.perf_counter() - began)
            if frontier:
                first = min(row[2] for row in rows)
            await timed("settle", [row[0] for row in rows])
            done += len(rows)
    log = await con.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", before)
    await holder.close()
    await con.execute("drop schema d cascade")
    await con.close()
    last = sorted(claims[-len(claims) // 10 :])
    return {
        **{f"{name}_us": round(seconds / done * 1e6, 1) for name, seconds in spent.items()},
        "total_us": round(sum(spent.values()) / done * 1e6, 1),
        "log_bytes": round(log / done),
        "last_claims_ms": round(last[len(last) // 2] * 1e3, 1),
    }


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=400)
    asked = parser.parse_args()
    for held in (False, True):
        for name, design in DESIGNS.items():
            frontier = "$2" in design["claim"]
            found = await run(asked.dsn, design, asked.jobs, asked.batch, held=held, frontier=frontier)
            print(json.dumps({"design": name, "snapshot held": held, **found}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
