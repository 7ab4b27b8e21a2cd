-- Statements of the release whose schema was version 1, as its workers send them. Not to be changed.

-- name: make_lanes
-- Lanes for jobs of a new kind; somebody else may have made them meanwhile.
with made as (
    insert into hawser.lane (queue, task, priority)
    select w.queue, w.task, w.priority from unnest($1::text[], $2::text[], $3::smallint[]) as w(queue, task, priority)
    order by w.queue, w.task, w.priority on conflict do nothing returning id
)
update hawser.control set version = greatest(version + 1, hawser.now(null)) where exists (select from made)

-- name: enqueue
-- Add jobs; the answer has those that were not added.
select place, holder::text from hawser.enqueue($1::bigint, $2::integer, $3::uuid[], $4::integer[], $5::bytea[], $6::bigint[],
    $7::bigint[], $8::integer[], $9::double precision[], $10::text[], $11::double precision[], $12::text[], $13::uuid[], $14::boolean[],
    $15::text[], $16::bigint[], $17::boolean, $18::boolean, $19::text[], $20::integer)

-- name: finish
-- Runs that were done. The fence: a lease that is not the current one, or has run out, changes nothing. The answer
-- has the places of those that stood, or nothing when all did.
with clock as materialized (select hawser.now($1) as now),
want as materialized (
    select w.n, w.id, w.lease, w.result, coalesce(w.keep, true) as keep
    from unnest($2::uuid[], $3::bigint[], $4::bytea[], $5::boolean[]) with ordinality as w(id, lease, result, keep, n)
),
gone as (
    delete from hawser.job as j using clock as c, want as w
    where j.id = any (array[w.id]) and j.lease = w.lease and j.running and j.lease_until > c.now
    returning c.now, w.n, w.result, w.keep, j.*
),
kept as (
    insert into hawser.done (day, finished_at, run_at, enqueued_at, started_at, lease, timeout, key_ttl, lane, attempt, max_attempts,
        returned, crashes, cancel_asked, confirm_replay, id, body, worker, key, tags, parent_id, schedule, tick, result,
        progress, attempts)
    select g.now / 86400000000, g.now, g.run_at, g.enqueued_at, g.started_at, g.lease, g.timeout, g.key_ttl, g.lane, g.attempt,
        g.max_attempts, g.returned, g.crashes, g.cancel_asked, g.confirm_replay, g.id, g.body, g.worker, g.key, g.tags, g.parent_id,
        g.schedule, g.tick, g.result, g.progress,
        case when g.lease > 1 then (
            select json_agg(json_build_array(a.number, a.lease, a.worker, a.started_at, a.ended_at, a.outcome, a.error, a.traceback)
                order by a.lease)::text
            from hawser.attempt as a where a.job = any (array[g.id])
        ) end
    from gone as g where g.keep
),
cleared as (delete from hawser.attempt as a using gone as g where g.lease > 1 and a.job = any (array[g.id])),
freed as (
    delete from hawser.key as k using gone as g
    where g.key is not null and (g.key_ttl = 0 or not g.keep) and k.job_id = any (array[g.id]) and k.key = g.key and k.until is null
    returning k.lane
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select case when p.name like '@%' then 0 else c.now / 60000000 end, e.lane, p.name, p.sign * e.count
    from clock as c, (select lane, least(attempt, 99) as attempt, keep, count(*) from gone group by 1, 2, 3) as e cross join lateral (
        values ('@running', -1), ('@done', e.keep::integer), ('done', 1), ('ended:' || e.attempt, 1)
    ) as p(name, sign) where p.sign <> 0
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select case when count(*) < cardinality($2) then coalesce(array_agg(n), '{}') end from gone

-- name: leave
-- Runs that ended any other way than done. The fence, again: only as long as the run stands as it was when its step was
-- decided; `$2` says whether its lease has run out. The answer has the places of those that stood.
with clock as materialized (select hawser.now($1) as now),
want as materialized (
    select * from unnest($3::uuid[], $4::bigint[], $5::boolean[], $6::text[], $7::smallint[], $8::bigint[], $9::integer[], $10::integer[],
        $11::text[], $12::text[], $13::text[], $14::text[], $15::integer[]) with ordinality
        as w(id, lease, cancel_asked, state, kind, after, attempt, returned, reason, word, error, traceback, number, n)
),
again as (
    update hawser.job as j set running = false, kind = w.kind, run_at = c.now + w.after, attempt = w.attempt, returned = w.returned,
        lease = j.lease + $2::integer, settled = case when $2 then null else j.lease end, cancel_asked = false, reason = w.reason,
        crashes = j.crashes + (w.word = 'lost')::integer, lease_until = null, granted = null
    from clock as c, want as w
    where w.state = 'ready' and j.id = any (array[w.id]) and j.lease = w.lease and j.running and (j.lease_until <= c.now) = $2
        and j.cancel_asked = w.cancel_asked
    returning w.n, j.lane, j.worker, j.started_at
),
gone as (
    delete from hawser.job as j using clock as c, want as w
    where w.state <> 'ready' and j.id = any (array[w.id]) and j.lease = w.lease and j.running and (j.lease_until <= c.now) = $2
        and j.cancel_asked = w.cancel_asked
    returning c.now, w.n, w.state, w.word, w.reason as said, j.*
),
ended as (
    insert into hawser.failed (seq, id, state, finished_at, run_at, enqueued_at, started_at, lease, settled, timeout, key_ttl, lane, attempt,
        max_attempts, returned, crashes, cancel_asked, confirm_replay, body, worker, key, tags, parent_id, schedule, tick, reason,
        progress)
    select g.seq, g.id, g.state, g.now, g.run_at, g.enqueued_at, g.started_at, g.lease + $2::integer, case when $2 then null else g.lease end,
        g.timeout, g.key_ttl, g.lane, g.attempt, g.max_attempts, g.returned, g.crashes + (g.word = 'lost')::integer, g.cancel_asked,
        g.confirm_replay, g.body, g.worker, g.key, g.tags, g.parent_id, g.schedule, g.tick,
        case when g.state = 'cancelled' and g.said is null and g.cancel_asked then g.reason else g.said end, g.progress
    from gone as g
),
freed as (
    delete from hawser.key as k using gone as g
    where g.key is not null and g.key_ttl = 0 and k.job_id = any (array[g.id]) and k.key = g.key and k.until is null
    returning k.lane
),
left_ as materialized (
    select n, lane, worker, started_at from again union all select n, lane, worker, started_at from gone
),
recorded as (
    insert into hawser.attempt (job, lease, number, worker, started_at, ended_at, outcome, error, traceback)
    select w.id, w.lease, w.number, l.worker, l.started_at, c.now, w.word, w.error, w.traceback
    from clock as c, want as w join left_ as l on l.n = w.n where w.word not in ('snoozed', 'released')
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select case when p.name like '@%' then 0 else c.now / 60000000 end, l.lane, p.name, sum(p.sign)
    from clock as c, want as w join left_ as l on l.n = w.n cross join lateral (
        values ('@running', -1),
            (case when w.state <> 'ready' then '@' || w.state when w.attempt > 0 then '@retrying' else '@timed' end, 1),
            (case when w.error is not null then case w.word when 'lost' then 'lost' else 'failed' end end, 1),
            (case when w.state <> 'ready' then w.state end, 1),
            (case when w.state <> 'ready' then 'ended:' || least(w.number, 99) end, 1),
            (case when w.word in ('snoozed', 'released') then 'returned' end, 1)
    ) as p(name, sign) where p.name is not null group by 1, 2, 3
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select l.n from left_ as l

-- name: cancel
-- End jobs that wait.
with clock as materialized (select hawser.now($1) as now),
gone as (delete from hawser.job as j where j.id = any($2) and not j.running returning j.*),
ended as (
    insert into hawser.failed (seq, id, state, finished_at, run_at, enqueued_at, started_at, lease, settled, timeout, key_ttl, lane, attempt,
        max_attempts, returned, crashes, cancel_asked, confirm_replay, body, worker, key, tags, parent_id, schedule, tick, reason,
        progress)
    select g.seq, g.id, 'cancelled', c.now, g.run_at, g.enqueued_at, g.started_at, g.lease, g.settled, g.timeout, g.key_ttl, g.lane, g.attempt,
        g.max_attempts, g.returned, g.crashes, g.cancel_asked, g.confirm_replay, g.body, g.worker, g.key, g.tags, g.parent_id, g.schedule,
        g.tick, $3, g.progress
    from gone as g, clock as c
),
freed as (
    delete from hawser.key as k using gone as g
    where g.key is not null and g.key_ttl = 0 and k.job_id = any (array[g.id]) and k.key = g.key and k.until is null
    returning k.lane
)
insert into hawser.counted (minute, lane, name, count)
select case when p.name like '@%' then 0 else c.now / 60000000 end, g.lane, p.name, p.sign
from clock as c, gone as g cross join lateral (
    values (case g.kind when 3 then '@retrying' when 2 then '@timed' else '@fresh' end, -1), ('@cancelled', 1), ('cancelled', 1)
) as p(name, sign)
union all select 0, f.lane, '@keys', -1 from freed as f

-- name: keys_over
-- How many keys have run out but are not yet swept, by queue, counted up to a limit.
select e.queue, count(*) from (select queue from hawser.key where until <= $1 limit 10000) as e group by e.queue

-- name: sweep_keys
-- Forget some windows that have run out.
with gone as (
    delete from hawser.key as k where (k.queue, k.key) in (
        select e.queue, e.key from hawser.key as e where e.until <= hawser.now($1) order by e.until limit $2 for update skip locked
    ) returning k.lane
)
insert into hawser.counted (minute, lane, name, count) select 0, g.lane, '@keys', -count(*) from gone as g group by g.lane

-- name: prune_failed
-- Dead and cancelled jobs that are past their retention, with their attempts.
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
cleared as (delete from hawser.attempt as a using gone as g where a.job = any (array[g.id])),
freed as (
    delete from hawser.key as k using gone as g
    where g.key is not null and k.job_id = any (array[g.id]) and k.key = g.key and k.until is null returning k.lane
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select 0, g.lane, '@' || g.state, -count(*) from gone as g group by g.lane, g.state
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select count(*) from gone
