-- name: waiting_jobs
-- The waiting jobs that a person changes, locked, but for held ones: where each stands, and the time.
select j.id::text, j.lane, l.queue, l.task, l.priority, j.run_at, j.attempt, j.key, j.group_name, hawser.now($2)
from hawser.job as j join hawser.lane as l on l.id = j.lane where j.id = any($1) and not j.running and j.held is null order by j.id for update of j

-- name: lanes_named
-- Lanes by their names, in the order of these.
select l.id from unnest($1::text[], $2::text[], $3::smallint[]) with ordinality as w(queue, task, priority, n)
join hawser.lane as l on l.queue = w.queue and l.task = w.task and l.priority = w.priority order by w.n

-- name: change
-- A waiting job goes to another place among those that wait.
with old as materialized (select j.id, j.lane, j.kind, j.group_name from hawser.job as j where j.id = $1 and not j.running),
moved as (update hawser.job as j set lane = $2, kind = $3, run_at = $4 from old as o where j.id = any (array[o.id])),
opened as (
    insert into hawser.arrived (lane, group_name, due_at)
    select $2::integer, o.group_name, $4::bigint from old as o where o.group_name is not null
),
keys as (update hawser.held_key as k set lane = $2 from old as o where k.job_id = any (array[o.id]) and k.lane = o.lane and o.lane <> $2 returning o.lane)
insert into hawser.counted (minute, lane, name, count)
select 0, p.lane, case p.kind % 4 when 3 then '@retrying' when 2 then '@timed' else '@fresh' end, p.sign
from old as o cross join lateral (values (o.lane, o.kind, -1), ($2::integer, $3::smallint, 1)) as p(lane, kind, sign)
union all select 0, p.lane, '@keys', p.sign from keys as k cross join lateral (values (k.lane, -1), ($2::integer, 1)) as p(lane, sign)

-- name: let_go
-- A job holds its key in its queue no longer, also within its window; the answer is until when it would have.
delete from hawser.held_key where queue = $1 and task = $2 and key = $3 and job_id = $4 returning until

-- name: hold_until
-- Until when a job holds the key that it has just taken.
update hawser.held_key set until = $5 where queue = $1 and task = $2 and key = $3 and job_id = $4

-- name: last_errors
-- The error of the last attempt of each job that has one.
select w.id::text, (select a.error from hawser.attempt as a where a.job = w.id and a.error is not null order by a.lease desc limit 1)
from unnest($1::uuid[]) as w(id)

-- name: end_dead
-- End jobs that wait as dead, each with what its error has in common with others.
with clock as materialized (select hawser.now($1) as now),
gone as (
    delete from hawser.job as j using unnest($2::uuid[], $3::text[]) as w(id, fingerprint)
    where j.id = any (array[w.id]) and not j.running returning w.fingerprint, j.*
),
ended as (
    insert into hawser.failed (seq, state, finished_at, run_at, lease, settled, attempt, crashes, cancel_asked, reason, fingerprint, [[along]])
    select g.seq, 'dead', c.now, g.run_at, g.lease, g.settled, g.attempt, g.crashes, g.cancel_asked, $4, g.fingerprint, [[along of g]]
    from gone as g, clock as c
),
freed as (
    delete from hawser.held_key as k using gone as g, clock as c
    where g.key is not null and g.key_ttl < 'infinity' and k.job_id = any (array[g.id]) and k.key = g.key
        and (k.until is null or k.until <= c.now)
    returning k.lane
),
told as (
    insert into hawser.ended_upstream (job, state)
    select g.id, 'dead' from gone as g cross join lateral (
        select from hawser.dependency as d where d.job = any (array[g.id]) limit 1
    ) as d where (select dependencies from hawser.control)
),
batched as (
    insert into hawser.batch_change (batch, dead) select g.batch, count(*) from gone as g where g.batch is not null group by g.batch
)
insert into hawser.counted (minute, lane, name, count)
select case when p.name like '@%' then 0 else c.now / 60000000 end, g.lane, p.name, p.sign
from clock as c, gone as g cross join lateral (
    values (case g.kind % 4 when 3 then '@retrying' when 2 then '@timed' else '@fresh' end, -1), ('@dead', 1), ('dead', 1)
) as p(name, sign)
union all select 0, f.lane, '@keys', -1 from freed as f

-- name: end_leases
-- The leases of a worker end now, and their claims are looked at by the next reclaim. When each was last lengthened stays known.
with clock as materialized (select hawser.now($1) as now),
cut as (
    update hawser.job as j set leased_for = greatest(0, j.leased_for - (j.lease_until - c.now)), lease_until = c.now from clock as c
    where j.id = any (array(select unnest(g.jobs) from hawser.granted as g)) and j.running and j.worker = $2 and j.lease_until > c.now
    returning j.granted
),
soon as (
    update hawser.granted as g set look_at = least(g.look_at, c.now) from clock as c where g.id = any (array(select granted from cut))
)
select count(*) from cut
