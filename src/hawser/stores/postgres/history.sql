-- name: days
-- The tables of `done`, one a day: the day, whether it is attached, whether it is being detached, and its size.
select substring(c.relname from 6)::integer, i.inhrelid is not null, coalesce(i.inhdetachpending, false), pg_table_size(c.oid)
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace left join pg_inherits as i on i.inhrelid = c.oid
where n.nspname = trim(trailing '.' from 'hawser.') and c.relkind = 'r' and c.relname ~ '^done_[0-9]+$' order by 1

-- name: lock_days
-- One at a time makes days.
select pg_advisory_xact_lock(hashtext('hawser.done'))

-- name: day_exists
-- Whether there is a table for a day.
select to_regclass('hawser.done_' || $1::text) is not null

-- part: left_behind
-- What the jobs in `gone` leave behind: steps, output and keys.
unstepped as (delete from hawser.step as s using gone as g where s.job = any (array[g.id])),
unwritten as (delete from hawser.output as o using gone as g where o.job = any (array[g.id])),
freed as (
    delete from hawser.held_key as k using gone as g
    where g.key is not null and k.job_id = any (array[g.id]) and k.key = g.key and (k.until is null or k.outlived) returning k.lane
)

-- name: prune_few
-- Jobs that were done and are past their retention, in a day that is small enough to be read through.
with clock as materialized (select hawser.now($1) as now),
gone as (
    delete from hawser.done as d where d.day = $2 and d.ctid = any (array(
        select e.ctid from hawser.done as e join unnest($3::integer[], $4::bigint[]) as k(lane, kept_for) on k.lane = e.lane, clock as c
        where e.day = $2 and e.finished_at <= c.now - k.kept_for order by e.finished_at limit $5
    )) returning d.id, d.lane, d.key
),
[[part left_behind]],
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select 0, g.lane, '@done', -count(*) from gone as g group by g.lane
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select count(*) from gone

-- name: prune_failed
-- Dead and cancelled jobs that are past their retention, with their attempts. A breaker does not name one as its probe any longer.
with clock as materialized (select hawser.now($1) as now),
gone as (
    delete from hawser.failed as f where f.id = any (array(
        select e.id from clock as c cross join unnest($2::integer[], $3::text[], $4::bigint[]) as k(lane, state, kept_for)
        cross join lateral (
            select d.id, d.finished_at from hawser.failed as d
            where d.lane = k.lane and d.state = k.state and d.finished_at <= c.now - k.kept_for order by d.finished_at limit $5
        ) as e order by e.finished_at limit $5
    )) returning f.id, f.lane, f.state, f.key
),
told as (
    insert into hawser.ended_upstream (job, state)
    select g.id, 'removed' from gone as g cross join lateral (
        select from hawser.dependency as d where d.job = any (array[g.id]) limit 1
    ) as d where (select dependencies from hawser.control) and g.state = 'dead'
),
cleared as (delete from hawser.attempt as a using gone as g where a.job = any (array[g.id])),
unprobed as (update hawser.breaker as b set probe_id = null, probe_lease = null where b.probe_id in (select id from gone)),
[[part left_behind]],
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select 0, g.lane, '@' || g.state, -count(*) from gone as g group by g.lane, g.state
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select count(*) from gone

-- name: sweep_keys
-- Forget some windows that have run out. Those whose jobs are live are passed over from now on: they end with their jobs. Not before
-- a minute is over: the end of a job that looks live may be about to be committed, and does not free a window that was not over then.
with clock as materialized (select hawser.now($1) as now),
over as materialized (
    select e.queue, e.task, e.key, e.until, exists (select from hawser.job as j where j.id = e.job_id and j.lane = e.lane and j.key = e.key) as live
    from hawser.held_key as e where e.until <= (select now from clock) and not e.outlived order by e.until limit $2
    for update of e skip locked
),
lasting as (
    update hawser.held_key as k set outlived = true from over as o, clock as c
    where o.live and o.until <= c.now - 60000000 and k.queue = o.queue and k.task = o.task and k.key = o.key
),
gone as (
    delete from hawser.held_key as k using over as o
    where not o.live and k.queue = o.queue and k.task = o.task and k.key = o.key returning k.lane
)
insert into hawser.counted (minute, lane, name, count) select 0, g.lane, '@keys', -count(*) from gone as g group by g.lane

-- name: forget
-- Let go of tallies, pauses, workers and audit records of long ago.
with clock as materialized (select hawser.now($1) as now),
tallies as (delete from hawser.tally as t using clock as c where t.minute > 0 and t.minute < c.now / 60000000 - $2),
places as (delete from hawser.tally as t where t.minute <= 0 and t.count = 0),
workers as (delete from hawser.worker as w using clock as c where w.seen_at <= c.now - $3),
pauses as (delete from hawser.pause as p using clock as c where p.until <= c.now)
delete from hawser.audit as a using clock as c where a.at <= c.now - $4
