-- name: live
-- The live jobs that an operator acts on, locked.
select id::text, lane, running, kind, key, key_ttl from hawser.job where id = any($1) order by id for update

-- name: ended
-- The dead and cancelled jobs that an operator acts on, locked.
select id::text, lane, state, key, batch::text from hawser.failed where id = any($1) order by id for update

-- name: endings
-- How jobs stand: the last error of a dead one, else its reason; and what a done one returned.
select id::text, lane, 'ready' as state, null as error, null::bytea as result from hawser.job where id = any($1)
union all
select f.id::text, f.lane, f.state, case f.state when 'dead' then coalesce(nullif((
        select a.error from hawser.attempt as a where a.job = f.id and a.error is not null order by a.lease desc limit 1
    ), ''), f.reason) else f.reason end, null from hawser.failed as f where f.id = any($1)
union all
select id::text, lane, 'done', null, result from hawser.done
where day >= least($2::integer, hawser.now($3) / 86400000000) - 1 and id = any($1)

-- name: elsewhere
-- Which of these jobs stand anywhere at all.
select id::text from hawser.job where id = any($1) union all select id::text from hawser.failed where id = any($1)
union all select id::text from hawser.done where day >= least($2::integer, hawser.now($3) / 86400000000) - 1 and id = any($1)

-- name: ask_to_cancel
-- Ask runs to end. One that is about to be settled in a transaction of its handler's own is waited for, up to the two seconds that an action
-- waits for any lock: then the caller hears that nothing was written, and tries again. Passed over, a run would go on unasked.
update hawser.job set cancel_asked = true, reason = $2 where id = any($1)

-- name: returned
-- A job that waits since a run under this lease was reclaimed, locked. What a claim and its settlement leave has settled its own
-- lease.
select id from hawser.job where id = $1 and not running and lease = $2::bigint + 1 and settled is distinct from lease for update

-- name: cancel
-- End jobs that wait.
with clock as materialized (select hawser.now($1) as now),
gone as (delete from hawser.job as j where j.id = any($2) and not j.running returning j.*),
ended as (
    insert into hawser.failed (seq, state, finished_at, run_at, lease, settled, attempt, crashes, cancel_asked, reason, [[along]])
    select g.seq, 'cancelled', c.now, g.run_at, g.lease, g.settled, g.attempt, g.crashes, g.cancel_asked, $3, [[along of g]]
    from gone as g, clock as c
),
freed as (
    delete from hawser.held_key as k using gone as g, clock as c
    where g.key is not null and g.key_ttl < 'infinity' and k.job_id = any (array[g.id]) and k.key = g.key
        and (k.until is null or k.until <= c.now)
    returning k.lane
),
waited as (delete from hawser.dependency as d using gone as g where g.held is not null and d.waiter = any (array[g.id])),
told as (
    insert into hawser.ended_upstream (job, state)
    select g.id, 'cancelled' from gone as g cross join lateral (
        select from hawser.dependency as d where d.job = any (array[g.id]) limit 1
    ) as d where (select dependencies from hawser.control)
),
batched as (
    insert into hawser.batch_change (batch, given_up) select g.batch, count(*) from gone as g where g.batch is not null group by g.batch
)
insert into hawser.counted (minute, lane, name, count)
select case when p.name like '@%' then 0 else c.now / 60000000 end, g.lane, p.name, p.sign
from clock as c, gone as g cross join lateral (
    values (case g.kind % 4 when 3 then '@retrying' when 2 then '@timed' else '@fresh' end, -1), ('@cancelled', 1), ('cancelled', 1),
        (case when g.held is not null then '@held' end, -1)
) as p(name, sign) where p.name is not null
union all select 0, f.lane, '@keys', -1 from freed as f

-- name: discard
-- Turn dead jobs into cancelled ones.
with clock as materialized (select hawser.now($1) as now),
gone as (
    update hawser.failed as f set state = 'cancelled', finished_at = c.now, reason = $3 from clock as c
    where f.id = any($2) and f.state = 'dead' returning f.id, f.lane, f.batch
),
batched as (
    insert into hawser.batch_change (batch, dead, given_up)
    select g.batch, -count(*), count(*) from gone as g where g.batch is not null group by g.batch
),
told as (
    insert into hawser.ended_upstream (job, state)
    select g.id, 'cancelled' from gone as g cross join lateral (
        select from hawser.dependency as d where d.job = any (array[g.id]) limit 1
    ) as d where (select dependencies from hawser.control)
)
insert into hawser.counted (minute, lane, name, count)
select case when p.name like '@%' then 0 else c.now / 60000000 end, g.lane, p.name, p.sign
from clock as c, gone as g cross join lateral (values ('@dead', -1), ('@cancelled', 1), ('cancelled', 1)) as p(name, sign)

-- name: hold_key
-- Give a key to a job that is live again, unless another job holds it; the answer is who holds it now. Its hold ends with the job.
insert into hawser.held_key as k (queue, task, key, job_id, lane, until) values ($2, $3, $4, $5, $6, null)
on conflict (queue, task, key) do update set (job_id, lane, until, outlived) = (
    select case when f.free then excluded.job_id else k.job_id end, case when f.free then excluded.lane else k.lane end,
        case when f.free then null else k.until end, k.outlived and not f.free
    from (select coalesce(k.until <= hawser.now($1)
        and not exists (select from hawser.job as j where j.id = k.job_id and j.lane = k.lane and j.key = k.key), false)
        or k.until is null and k.job_id <> excluded.job_id and hawser.has_let_go(k.job_id) as free) as f
)
returning k.job_id::text, (xmax = 0) as fresh

-- name: requeue
-- Ready again, with attempts from zero; the lease number stays.
with clock as materialized (select hawser.now($1) as now),
gone as (
    delete from hawser.failed as f using unnest($2::uuid[], $3::bigint[]) as w(id, later) where f.id = any (array[w.id]) returning f.*, w.later
),
back as (
    insert into hawser.job (seq, run_at, lease, settled, attempt, crashes, cancel_asked, reason, kind, [[again]])
    overriding system value select g.seq, c.now + g.later, g.lease, g.settled, 0, g.crashes, false, null, case when g.group_name is null then 2 else 6 end,
        [[again of g]]
    from gone as g, clock as c order by g.id
),
opened as (
    insert into hawser.arrived (lane, group_name, due_at) select g.lane, g.group_name, c.now + min(g.later)
    from gone as g, clock as c where g.group_name is not null group by g.lane, g.group_name, c.now
),
told as (
    insert into hawser.ended_upstream (job, state)
    select g.id, 'ready' from gone as g cross join lateral (
        select from hawser.dependency as d where d.job = any (array[g.id]) and d.counted is not null limit 1
    ) as d where (select dependencies from hawser.control)
),
batched as (
    insert into hawser.batch_change (batch, dead, given_up)
    select g.batch, -count(*) filter (where g.state = 'dead'), -count(*) filter (where g.state = 'cancelled') from gone as g
    where g.batch is not null group by g.batch
)
insert into hawser.counted (minute, lane, name, count)
select 0, g.lane, p.name, p.sign from gone as g cross join lateral (values ('@' || g.state, -1), ('@timed', 1)) as p(name, sign)

-- name: note
-- An operator's action.
insert into hawser.audit (at, by, action, target, count, reason, about) values (hawser.now($1), $2, $3, $4, $5, $6, $7)

-- name: audit
-- The latest actions, or the latest before one.
select seq, at, by, action, target, count, reason, about from hawser.audit
where seq < coalesce($2, 9223372036854775807) and ($3::text is null or action = $3)
    and ($4::text is null or by = $4 or left(by, length($4) + 1) = $4 || ':') order by seq desc limit $1

-- name: pause
-- Pause a queue or task; a second pause replaces the first.
insert into hawser.pause (kind, name, since, until, reason, by) values ($2, $3, hawser.now($1), $4, $5, $6)
on conflict (kind, name) do update set since = excluded.since, until = excluded.until, reason = excluded.reason, by = excluded.by

-- name: resume
-- End a pause; says whether it was in force.
delete from hawser.pause where kind = $2 and name = $3 returning until is null or until > hawser.now($1)

-- name: changed
-- Lanes, pauses or limits are not as they were.
update hawser.control set version = greatest(version + 1, hawser.now(null))

-- name: pauses
-- The pauses in force.
select kind, name, since, until, reason, by from hawser.pause where until is null or until > hawser.now($1) order by since, kind, name

-- name: set_policy
-- How a queue's jobs are run; the attempts of new ones stand beside it, for enqueue.
insert into hawser.queue (queue, policy, max_attempts) values ($1, $2, $3)
on conflict (queue) do update set policy = excluded.policy, max_attempts = excluded.max_attempts

-- name: policies
-- The policies that are set.
select queue, policy from hawser.queue where policy is not null

-- name: workers
-- The workers heard of lately.
select since, seen_at, about from hawser.worker where seen_at > hawser.now($1) - $2 order by since, worker

-- name: all_live
-- Live jobs as an operator sees them. Each all_… has the same columns.
select case when j.running then 'running' else 'ready' end as state, j.attempt, j.lease, j.run_at, null::bigint as finished_at,
    j.lease_until, j.cancel_asked, j.crashes, j.reason, null::bytea as result, null::text as attempts, j.held, [[along of j]]
from hawser.job as j

-- name: all_done
-- Jobs that were done.
select 'done' as state, j.attempt, j.lease, j.run_at, j.finished_at,
    null::bigint as lease_until, j.cancel_asked, j.crashes, null as reason, j.result, j.attempts, null::bigint as held, [[along of j]]
from hawser.done as j

-- name: all_failed
-- Jobs that are dead or were cancelled.
select j.state, j.attempt, j.lease, j.run_at, j.finished_at,
    null::bigint as lease_until, j.cancel_asked, j.crashes, j.reason, null::bytea as result, null::text as attempts,
    null::bigint as held, [[along of j]]
from hawser.failed as j

-- name: attempts
-- What is kept of the attempts of these jobs, oldest first.
select job::text, number, lease, worker, started_at, ended_at, outcome, error, traceback from hawser.attempt
where job = any($1) order by job, lease

-- name: dead_letters
-- Dead jobs in brief, newest first, from behind the cursor; the error only of those of some lanes, or of all.
select f.id::text, f.lane, case when $2::integer[] is null or f.lane = any($2) then
        substr(ltrim(coalesce(nullif((
            select a.error from hawser.attempt as a where a.job = f.id and a.error is not null order by a.lease desc limit 1
        ), ''), f.reason), $3), 1, $4)
    end, f.finished_at
from hawser.failed as f where f.state = 'dead' and f.id < $1 order by f.id desc limit $5

-- name: dead_groups
-- The largest groups of dead jobs, each with its oldest and its newest job.
-- A range of one fingerprint on purpose: for an equality the planner would rather read all dead jobs by id until one matches. `is true`
-- keeps other indexes out: without statistics the planner would rather read all of a lane and sort them.
with counts as materialized (
    select c.lane, c.name, sum(c.count)::bigint as count from (
        select t.lane, t.name, t.count from hawser.tally as t where t.minute = -1
        union all select d.lane, d.name, d.count from hawser.counted as d where d.minute = -1
    ) as c group by c.lane, c.name having sum(c.count) > 0
),
largest as materialized (
    select l.task, c.name, sum(c.count)::bigint as count, array_agg(l.id) as lanes
    from counts as c join hawser.lane as l on l.id = c.lane
    where ($1::text is null or l.queue = $1) and ($2::text is null or l.task = $2)
    group by l.task, c.name order by 3 desc, 1, 2 limit $3
)
select g.task, g.name, g.count, o.finished_at, s.id::text, s.lane, s.error, s.finished_at
from largest as g
cross join lateral (
    select f.finished_at from hawser.failed as f
    where f.fingerprint between g.name and g.name and (f.state = 'dead') is true and (f.lane = any (g.lanes)) is true order by f.fingerprint, f.id limit 1
) as o
cross join lateral (
    select f.id, f.lane, f.finished_at, substr(ltrim(coalesce(nullif((
            select a.error from hawser.attempt as a where a.job = f.id and a.error is not null order by a.lease desc limit 1
        ), ''), f.reason), $4), 1, $5) as error
    from hawser.failed as f
    where f.fingerprint between g.name and g.name and (f.state = 'dead') is true and (f.lane = any (g.lanes)) is true
    order by f.fingerprint desc, f.id desc limit 1
) as s
order by g.count desc, g.task, g.name

-- name: count_ungrouped
-- How many dead jobs have no fingerprint yet, counted up to a limit.
select count(*) from (select from hawser.failed as f where f.fingerprint is null and f.state = 'dead' limit $1) as u

-- name: ungrouped
-- Dead jobs that have no fingerprint yet, with their errors, locked.
select f.id::text, substr(ltrim(coalesce(nullif((
            select a.error from hawser.attempt as a where a.job = f.id and a.error is not null order by a.lease desc limit 1
        ), ''), f.reason), $1), 1, $2)
from hawser.failed as f where f.fingerprint is null and f.state = 'dead' order by f.id desc limit $3 for update skip locked

-- name: group_dead
-- What the errors of dead jobs have in common with others.
update hawser.failed as f set fingerprint = w.fingerprint
from unnest($1::uuid[], $2::text[]) as w(id, fingerprint) where f.id = any (array[w.id]) and f.fingerprint is null

-- name: count_running
-- How many jobs run, in some lanes or in all.
select coalesce(sum(c.count), 0)::bigint from (
    select t.lane, t.count from hawser.tally as t where t.minute = 0 and t.name = '@running'
    union all select d.lane, d.count from hawser.counted as d where d.minute = 0 and d.name = '@running'
) as c where $1::integer[] is null or c.lane = any($1)

-- name: running
-- The jobs that run, in some lanes or in all; as many as were counted in the same snapshot, so nothing is looked at behind the last.
-- Each stands in the claim that gave it out, beside many that have ended: of claims whose leases have run out once, only those with
-- jobs that still run are kept, so the oldest and the newest claims are looked at first.
-- No plain equalities: all live jobs would be read for them, 3 s of 100,000 that wait.
select r.id from (
    select c.id, c.jobs from (
        select g.id, g.jobs, row_number() over (order by g.id) as place, count(*) over () as claims from hawser.granted as g
    ) as c order by least(c.place, c.claims - c.place)
) as g cross join lateral unnest(g.jobs) as w(id) cross join lateral (
    select j.id from hawser.job as j where j.id = any (array[w.id]) and j.granted = any (array[g.id]) and j.running
        and ($1::integer[] is null or j.lane = any ($1))
) as r limit $2

-- name: live_in_lanes
-- A condition: the job stands in one of these lanes. Looked up first, in an array, since the planner would rather read by id.
j.id = any (array(select f.id from hawser.job as f where f.lane = any ({}::integer[])))

-- name: failed_in_lanes
-- As live_in_lanes, among the jobs that are dead or were cancelled.
j.id = any (array(select f.id from hawser.failed as f where f.lane = any ({}::integer[])))

-- name: with_tag
-- A condition: the job has the tag. Looked up first, as above: the index of tags gives no order.
j.id = any (array(
    select f.id from hawser.{table} as f where f.tags is not null and f.tags::jsonb ? {tag}
))

-- name: by_bitmaps
-- The index of tags is read in no other way, which is switched off for all else.
set local enable_bitmapscan = on

-- name: count_tagged
-- How many jobs of a table from behind the cursor have the tag, up to a number. By the index of tags alone: the planner would
-- rather read all jobs by their ids.
select count(*) from (
    select from (
        select f.id from hawser.{table} as f where f.tags is not null and f.tags::jsonb ? $2 offset 0
    ) as t where t.id < $1 limit $3
) as u

-- name: lane_counts
-- How many jobs of these lanes stand where.
select c.name, sum(c.count)::bigint from (
    select t.name, t.count from hawser.tally as t where t.minute = 0 and t.lane = any($1::integer[])
    union all select d.name, d.count from hawser.counted as d where d.minute = 0 and d.lane = any($1)
) as c group by c.name

-- name: scheduled
-- A condition: the job waits for its time, and was never tried.
u.state = 'ready' and u.attempt = 0 and u.held is null and u.run_at > hawser.now({}::bigint)
