-- Joins are written as `j.id = any (array[w.id])` on purpose. As plain equalities they could also be merged, for which a whole index
-- would be read in order: the planner does so when the table was empty as it was last analyzed, however large it has become.

-- name: lane_catalog
-- All lanes and all pauses, also those that are over, what else claims obey; and the number that rises when any of them changes.
select version, (select json_agg(json_build_array(id, queue, task, priority, grouped)) from hawser.lane)::text,
    (select json_agg(json_build_array(kind, name, until)) from hawser.pause)::text,
    (select json_agg(json_build_array(id, kind, name, per_group, ordered) order by id) from hawser.limited
        where running is not null or starts is not null)::text,
    (select json_object_agg(task, coalesce(probe_at, 0)) from hawser.breaker where open)::text,
    (select json_agg(json_build_array(queue, policy)) from hawser.queue where policy is not null)::text,
    dependencies, expiries
from hawser.control

-- name: make_lanes
-- Lanes for jobs of a new kind; another process may have made them meanwhile.
with made as (
    insert into hawser.lane as l (queue, task, priority, grouped)
    select w.queue, w.task, w.priority, w.grouped
    from unnest($1::text[], $2::text[], $3::smallint[], $4::boolean[]) as w(queue, task, priority, grouped)
    order by w.queue, w.task, w.priority
    on conflict (queue, task, priority) do update set grouped = true where excluded.grouped and not l.grouped returning id
)
update hawser.control set version = greatest(version + 1, hawser.now(null)) where exists (select from made)

-- name: enqueue
-- Add jobs; the answer has those that were not added. An id that belongs to another job is refused.
select place, holder::text from hawser.enqueue_checked($1::bigint, $2::integer, $3::uuid[], $4::integer[], $5::bigint[], $6::bigint[],
    $7::integer[], $8::boolean, $9::boolean, $10::text[], $11::integer, $12::integer, $13::double precision, [[given from 14]])

-- name: follow
-- Add jobs that follow from another; the answer has those that were not added.
select place, holder::text from hawser.enqueue($1::bigint, $2::integer, $3::uuid[], $4::integer[], $5::bigint[], $6::bigint[],
    $7::integer[], $8::boolean, $9::boolean, $10::text[], $11::integer, $12::integer, $13::double precision, [[given from 14]])

-- name: before_copy
-- The store's time, whether any queue has something to say of what is enqueued, and how many of these lanes there are.
select hawser.now($1), exists (select from hawser.queue where max_depth is not null or max_attempts is not null),
    (select count(*) from hawser.lane where id = any($2::integer[]))

-- name: wake
-- Tell those who listen that these queues may have work.
select pg_notify('hawser.wake', w) from unnest($1::text[]) as w

-- name: await_standby
-- Returns when the synchronous standby has all that can be seen here. What was written before may be on no standby although it can be
-- seen: its commit waited for one, and was ended. An answer that writes nothing would not wait.
select pg_logical_emit_message(true, 'hawser', '') where current_setting('synchronous_standby_names') <> ''

-- name: clock
-- The store's time.
select hawser.now($1)

-- name: known
-- Which of these ids have come to their end.
select id::text from hawser.done where day >= $2 and id = any($1) union all select id::text from hawser.failed where id = any($1)

-- name: peek
-- The due jobs at the head of each source, without taking them.
-- $1 a test's clock, $2 the catalog's version, $3 lanes, $4 kinds, $5 and $6 frontiers (due time, sequence), $7 most of each source,
-- $8 until when the catalog is good, $9 jobs to leave.
with clock as materialized (select hawser.now($1) as now, (select version from hawser.control) as version),
source as materialized (
    select * from unnest($3::integer[], $4::smallint[], $5::bigint[], $6::bigint[]) with ordinality as s(lane, kind, run_at, seq, n)
)
select c.now, c.version, d.n, d.run_at, d.seq from clock as c left join lateral (
    select s.n, h.run_at, h.seq from source as s cross join lateral (
        select j.run_at, j.seq from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= c.now and not j.running
            and (j.expires_at > c.now) is not false and j.id <> all ($9::uuid[])
        order by j.run_at, j.seq limit $7
    ) as h where c.version = $2 and c.now < $8
) as d on true

-- name: peek_further
-- The due jobs of some sources behind their heads, up to a place, without taking them.
-- $1 a test's clock, $2 the catalog's version, $3 lanes, $4 kinds, $5 and $6 heads (due time, sequence), $7 and $8 the last places, $9 most
-- of each source, $10 numbers: sources of one number give so many together, the first of all of them; $11 how far to look in each, $12
-- until when the catalog is good, $13 jobs to leave.
with clock as materialized (select hawser.now($1) as now, (select version from hawser.control) as version),
source as materialized (
    select * from unnest($3::integer[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::integer[], $10::integer[])
        with ordinality as s(lane, kind, run_at, seq, to_run_at, to_seq, most, merged, n)
)
select c.now, c.version, d.n, d.run_at, d.seq from clock as c left join lateral (
    select s.n, h.run_at, h.seq, s.most,
        case when s.merged is not null then row_number() over (partition by s.merged order by h.run_at, h.seq) else 0 end as place
    from source as s cross join lateral (
        select j.run_at, j.seq from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) > (s.run_at, s.seq) and (j.run_at, j.seq) <= (s.to_run_at, s.to_seq)
            and j.run_at <= c.now and not j.running and (j.expires_at > c.now) is not false and j.id <> all ($13::uuid[])
        order by j.run_at, j.seq limit least(s.most, $11) - 1
    ) as h where c.version = $2 and c.now < $12
) as d on d.place < d.most
order by d.n, d.run_at, d.seq

-- part: taken
-- The jobs of `head` begin to run: they are counted, one row has the ids of all, and the answer has a row for each, or one that is empty.
grant_ as materialized (select nextval('hawser.grants') as id where exists (select from head)),
taken as (
    update hawser.job as j set running = true, attempt = j.attempt + 1, lease = j.lease + 1, worker = $8, granted = g.id,
        started_at = c.now, leased_for = least($9, (j.timeout * 1000000)::bigint + $10),
        lease_until = c.now + least($9, (j.timeout * 1000000)::bigint + $10)
    from clock as c, grant_ as g where j.ctid = any (array(select tid from head))
    returning j.seq, j.id, j.lane, j.kind, j.attempt, j.max_attempts, j.lease, j.run_at, j.enqueued_at, j.crashes, j.returned,
        j.lease_until, [[claimed of j]]
),
granted as (
    insert into hawser.granted (id, look_at, jobs)
    select g.id, t.look_at, t.jobs from grant_ as g, (select min(lease_until) as look_at, array_agg(id) as jobs from taken) as t
    where t.jobs is not null
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select case p.name when 'claimed' then c.now / 60000000 else 0 end, t.lane, p.name, p.sign * t.count
    from clock as c, (select lane, kind, count(*) from taken group by lane, kind) as t cross join lateral (
        values ('@running', 1), ('claimed', 1), (case when t.kind = 3 then '@retrying' when t.kind = 2 then '@timed' else '@fresh' end, -1)
    ) as p(name, sign)
)
select c.now, c.version, exists (select from other) as mixed, t.seq, t.id::text, t.lane, t.attempt, t.max_attempts, t.lease, t.run_at,
    t.enqueued_at, t.crashes, t.returned, [[claimed text of t]]
from clock as c left join taken as t on true

-- name: take
-- Claim jobs: the attempt is counted here, in the claim, and the lease number rises. Nothing is taken when what the claimer
-- knows of lanes and pauses is old, or a pause has ended since, or when a source that it expects to be empty has a due job.
-- $1 a test's clock, $2 the catalog's version, $3 lanes, $4 kinds, $5 and $6 where to begin (due time, sequence), $7 places for each
-- source (0: it is expected to be empty), $8 the worker, $9 the lease and $10 the grace in microseconds, $11 until when the catalog is
-- good, $12 jobs to leave.
with clock as materialized (select hawser.now($1) as now, (select version from hawser.control) as version),
source as materialized (
    select * from unnest($3::integer[], $4::smallint[], $5::bigint[], $6::bigint[], $7::integer[])
        with ordinality as s(lane, kind, run_at, seq, places, n)
),
other as materialized (
    select from clock as c cross join source as s cross join lateral (
        select from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= c.now and not j.running
            and (j.expires_at > c.now) is not false and j.id <> all ($12::uuid[])
        order by j.run_at, j.seq limit 1
    ) as h where s.places = 0 limit 1
),
head as materialized (
    select h.tid from clock as c cross join source as s cross join lateral (
        select j.ctid as tid from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= c.now and not j.running
            and (j.expires_at > c.now) is not false and j.id <> all ($12::uuid[])
        order by j.run_at, j.seq limit s.places for update skip locked
    ) as h where s.places > 0 and c.version = $2 and c.now < $11 and not exists (select from other)
),
[[part taken]]

-- name: latest
-- The store's time; and the highest that any process has seen, with how often the clock was found to be set back.
select hawser.now($1), (select value from hawser.meta where name = 'clock')

-- name: note_latest
-- Note the time as the highest, unless it is not, or that was done a moment ago.
with clock as materialized (select hawser.now($1) as now)
insert into hawser.meta as m (name, value) select 'clock', c.now || ':0' from clock as c
on conflict (name) do update set value = split_part(excluded.value, ':', 1) || ':' || split_part(m.value, ':', 2)
where split_part(m.value, ':', 1)::bigint < split_part(excluded.value, ':', 1)::bigint - $2

-- name: make_due
-- After the clock was set back: jobs that waited for their time and were due before are due now, in the same order. Done by
-- the one who takes the number `$2` up, together with it.
with clock as materialized (select hawser.now($1) as now),
mine as (
    update hawser.meta as m set value = c.now || ':' || ($2::bigint + 1) from clock as c
    where m.name = 'clock' and split_part(m.value, ':', 2)::bigint = $2 returning m.name
),
ahead as materialized (
    select h.tid from mine, clock as c, unnest($3::integer[], $4::smallint[]) as s(lane, kind) cross join lateral (
        select j.ctid as tid from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and j.run_at > c.now and j.run_at <= $5 and not j.running for update
    ) as h
)
update hawser.job as j set run_at = c.now from clock as c where j.ctid = any (array(select tid from ahead))

-- name: make_fresh_due
-- Some jobs that were due when they were enqueued and lie ahead, for the clock was set back since: they are due now, in the same
-- order. The answer is how many.
with clock as materialized (select hawser.now($1) as now),
ahead as materialized (
    select h.tid from clock as c, unnest($2::integer[], $3::smallint[]) as s(lane, kind) cross join lateral (
        select j.ctid as tid from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and j.run_at > c.now and not j.running
        order by j.run_at, j.seq limit $4 for update skip locked
    ) as h limit $4
),
made as (
    update hawser.job as j set run_at = c.now from clock as c where j.ctid = any (array(select tid from ahead)) returning j.seq
)
select count(*) from made

-- name: behind
-- The first job of each source that waits behind the claimer's frontier although it is due.
select s.n, h.run_at, h.seq from unnest($2::integer[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
    with ordinality as s(lane, kind, run_at, seq, to_run_at, to_seq, n)
cross join lateral (
    select j.run_at, j.seq from hawser.job as j
    where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and (j.run_at, j.seq) < (s.to_run_at, s.to_seq)
        and j.run_at <= hawser.now($1) and not j.running and (j.expires_at > hawser.now($1)) is not false and j.id <> all ($8::uuid[])
    order by j.run_at, j.seq limit 1
) as h

-- name: next_due
-- When the next job of these sources is due; and the version of the lane catalog.
select hawser.now($1), (select version from hawser.control), min(h.run_at) from unnest($2::integer[], $3::smallint[], $4::bigint[], $5::bigint[]) as s(lane, kind, run_at, seq)
cross join lateral (
    select j.run_at from hawser.job as j
    where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and not j.running and (j.expires_at > hawser.now($1)) is not false and j.id <> all ($6::uuid[])
    order by j.run_at, j.seq limit 1
) as h

-- part: done
-- What follows when the runs `gone` were done. The columns that each reader of `gone` looks at come first: what stands behind one that
-- may be null or of any length is looked for anew in each row.
kept as (
    insert into hawser.done (day, finished_at, run_at, lease, attempt, crashes, cancel_asked, result, [[along]], attempts)
    select g.now / 86400000000, g.now, g.run_at, g.lease, g.attempt, g.crashes, g.cancel_asked, g.result, [[along of g]],
        case when g.lease > 1 then (
            select json_agg(json_build_array(a.number, a.lease, a.worker, a.started_at, a.ended_at, a.outcome, a.error, a.traceback)
                order by a.lease)::text
            from hawser.attempt as a where a.job = any (array[g.id])
        ) end
    from gone as g where g.keep
),
cleared as (delete from hawser.attempt as a using gone as g where g.lease > 1 and a.job = any (array[g.id])),
freed as (
    delete from hawser.held_key as k using gone as g
    where g.key is not null and (g.key_ttl < 'infinity' or not g.keep) and k.job_id = any (array[g.id]) and k.key = g.key
        and (k.until is null or k.until <= g.now)
    returning k.lane
),
told as (
    insert into hawser.ended_upstream (job, state)
    select g.id, 'done' from gone as g cross join lateral (
        select from hawser.dependency as d where d.job = any (array[g.id]) limit 1
    ) as d where (select dependencies from hawser.control)
    returning job
),
batched as (
    insert into hawser.batch_change (batch, done)
    select g.batch, count(*) from gone as g where (select dependencies from hawser.control) and g.batch is not null group by g.batch
    returning batch
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select case when p.name like '@%' then 0 else c.now / 60000000 end, e.lane, p.name, p.sign * e.count
    from clock as c, (select lane, least(attempt, 99) as attempt, keep, count(*) from gone group by 1, 2, 3) as e cross join lateral (
        values ('@running', -1), ('@done', e.keep::integer), ('done', 1), ('ended:' || e.attempt, 1)
    ) as p(name, sign) where p.sign <> 0
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select case when count(*) < cardinality($2) or $3 or exists (select from told) or exists (select from batched)
    then case when exists (select from told) or exists (select from batched) then '!' else '' end
        || (select coalesce(json_agg(json_build_array(g.id, g.lease, g.lane, g.attempt, g.max_attempts)), '[]')::text from gone as g) end
from gone

-- name: finish
-- Runs that were done. The fence: a lease that is not the current one changes nothing. The answer
-- has for each that stood its id, lease, lane, attempt and attempts; it is null when all did and no
-- job waits for one of them and no batch counts one, unless `$3` asks for it. An exclamation mark in front says that one does.
-- $1 a test's clock, $2 ids, $4 leases, $5 whether to keep each, $6 results.
with clock as materialized (select hawser.now($1) as now),
want as materialized (
    select w.id, w.lease, coalesce(w.keep, true) as keep, w.result
    from unnest($2::uuid[], $4::bigint[], $5::boolean[], $6::bytea[]) as w(id, lease, keep, result)
),
gone as (
    delete from hawser.job as j using clock as c, want as w
    where j.id = any (array[w.id]) and j.lease = w.lease and j.running
    returning j.lease, w.keep, j.attempt, c.now, j.run_at, j.crashes, j.cancel_asked, [[along of j]], w.result
),
[[part done]]

-- name: finish_plain
-- The same of runs without a result, in the order of their ids, each of which stands once: it is its place there that says which lease
-- and which wish to keep belong to it. All rows are found in one walk along the index: 1.6 µs of the server's CPU less for each.
with clock as materialized (select hawser.now($1) as now),
gone as (
    delete from hawser.job as j using clock as c
    where j.id = any ($2::uuid[]) and j.running and j.lease = ($4::bigint[])[width_bucket(j.id, $2)]
    returning j.lease, case when $5::boolean[] is null then true else $5[width_bucket(j.id, $2)] end as keep, j.attempt, c.now, j.run_at,
        j.crashes, j.cancel_asked, [[along of j]], null::bytea as result
),
[[part done]]

-- name: held
-- Of these runs, those that stand: what is asked of them next depends on it. No lock: the write repeats the fence.
select j.id::text, j.lease, j.attempt, j.max_attempts, j.returned, j.cancel_asked
from unnest($1::uuid[], $2::bigint[]) as w(id, lease) join hawser.job as j on j.id = any (array[w.id]) and j.lease = w.lease and j.running

-- name: leave
-- Runs that ended any other way than done. The fence, again: only as long as the run stands as it was when its step was
-- decided; `$2` says that it is reclaimed, for which its lease must have run out. The answer has the places and lanes of those that stood, and whether
-- other jobs wait for one of them, or a batch counts one. One that is to be held for an event says no time: it has its place of held jobs,
-- `$20`, at once; what holds it is written behind, in the same transaction, and then need not move it. A group's turn is told of it before.
with clock as materialized (select hawser.now($1) as now),
want as materialized (
    select * from unnest($3::uuid[], $4::bigint[], $5::boolean[], $6::text[], $7::smallint[], $8::bigint[], $9::integer[], $10::integer[],
        $11::text[], $12::text[], $13::boolean[], $14::boolean[], $15::text[], $16::text[], $17::text[], $18::integer[], $19::text[])
        with ordinality as w(id, lease, cancel_asked, state, kind, after, attempt, returned, reason, word, recorded, crashed, counts_as,
            error, traceback, number, fingerprint, n)
),
again as (
    update hawser.job as j set running = false, kind = w.kind + case when j.group_name is null then 0 else 4 end,
        run_at = case when w.after is null and j.group_name is null then $20::bigint else c.now + coalesce(w.after, 0) end, attempt = w.attempt,
        returned = w.returned, lease = j.lease + $2::integer, settled = case when $2 then null else j.lease end, cancel_asked = false, reason = w.reason, meters = null,
        crashes = j.crashes + w.crashed::integer, lease_until = null, granted = null
    from clock as c, want as w
    where w.state = 'ready' and j.id = any (array[w.id]) and j.lease = w.lease and j.running and (not $2 or j.lease_until <= c.now)
        and j.cancel_asked = w.cancel_asked
    returning w.n, j.lane, j.worker, j.started_at, j.group_name, j.run_at
),
opened as (
    insert into hawser.arrived (lane, group_name, due_at)
    select a.lane, a.group_name, min(a.run_at) from again as a where a.group_name is not null group by a.lane, a.group_name
),
gone as (
    delete from hawser.job as j using clock as c, want as w
    where w.state <> 'ready' and j.id = any (array[w.id]) and j.lease = w.lease and j.running and (not $2 or j.lease_until <= c.now)
        and j.cancel_asked = w.cancel_asked
    returning c.now, w.n, w.state, w.crashed, w.reason as said, w.fingerprint, j.*
),
ended as (
    insert into hawser.failed (seq, state, finished_at, run_at, lease, settled, attempt, crashes, cancel_asked, reason, fingerprint,
        [[along]])
    select g.seq, g.state, g.now, g.run_at, g.lease + $2::integer, case when $2 then null else g.lease end, g.attempt,
        g.crashes + g.crashed::integer, g.cancel_asked,
        case when g.state = 'cancelled' and g.said is null and g.cancel_asked then g.reason else g.said end, g.fingerprint,
        [[along of g]]
    from gone as g
),
freed as (
    delete from hawser.held_key as k using gone as g
    where g.key is not null and g.key_ttl < 'infinity' and k.job_id = any (array[g.id]) and k.key = g.key
        and (k.until is null or k.until <= g.now)
    returning k.lane
),
told as (
    insert into hawser.ended_upstream (job, state)
    select g.id, g.state from gone as g cross join lateral (
        select from hawser.dependency as d where d.job = any (array[g.id]) limit 1
    ) as d where (select dependencies from hawser.control)
    returning job
),
batched as (
    insert into hawser.batch_change (batch, dead, given_up)
    select g.batch, count(*) filter (where g.state = 'dead'), count(*) filter (where g.state = 'cancelled') from gone as g
    where (select dependencies from hawser.control) and g.batch is not null group by g.batch
    returning batch
),
left_ as materialized (
    select n, lane, worker, started_at from again union all select n, lane, worker, started_at from gone
),
recorded as (
    insert into hawser.attempt (job, lease, number, worker, started_at, ended_at, outcome, error, traceback)
    select w.id, w.lease, w.number, l.worker, l.started_at, c.now, w.word, w.error, w.traceback
    from clock as c, want as w join left_ as l on l.n = w.n where w.recorded
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select case when p.name like '@%' then 0 else c.now / 60000000 end, l.lane, p.name, sum(p.sign)
    from clock as c, want as w join left_ as l on l.n = w.n cross join lateral (
        values ('@running', -1),
            (case when w.state <> 'ready' then '@' || w.state when w.attempt > 0 then '@retrying' else '@timed' end, 1),
            (w.counts_as, 1),
            (case when w.state <> 'ready' then w.state end, 1),
            (case when w.state <> 'ready' then 'ended:' || least(w.number, 99) end, 1)
    ) as p(name, sign) where p.name is not null group by 1, 2, 3
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select l.n, l.lane, exists (select from told) or exists (select from batched) as told from left_ as l

-- name: trim_attempts
-- Forget the oldest attempts of jobs that have very many.
delete from hawser.attempt as a using unnest($1::uuid[]) as w(id)
where a.job = w.id and a.lease <= (select b.lease from hawser.attempt as b where b.job = w.id order by b.lease desc limit 1 offset $2)

-- name: standing
-- Where jobs stand whose lease was refused: lease, last settled lease, state, microseconds until it is due, lane, attempts.
select id::text, lease, settled, case when running then 'running' else 'ready' end, greatest(0, run_at - hawser.now($3)), lane,
    attempt, max_attempts from hawser.job where id = any($1)
union all select id::text, lease, settled, state, 0, lane, attempt, max_attempts from hawser.failed where id = any($1)
union all select id::text, lease, lease, 'done', 0, lane, attempt, max_attempts from hawser.done
where day >= least($2::integer, hawser.now($3) / 86400000000) - 1 and id = any($1)

-- name: count
-- Something happened that no other statement counts.
insert into hawser.counted (minute, lane, name, count)
select case when w.name like '@%' then 0 else hawser.now($1) / 60000000 end, w.lane, w.name, w.count
from unnest($2::integer[], $3::text[], $4::bigint[]) as w(lane, name, count)

-- name: finish_inside
-- Settle one run as done on the connection of its handler; null when it stands no more.
select hawser.finish_inside($1::bigint, $2::uuid, $3::bigint, $4::bytea, $5::boolean)

-- name: fold
-- Add what was counted to the tally. One process at a time: the others skip it.
with mine as materialized (select pg_try_advisory_xact_lock(hashtext('hawser.counted')) as got),
gone as (delete from hawser.counted as c using mine where mine.got returning c.minute, c.lane, c.name, c.count)
insert into hawser.tally as t (minute, lane, name, count)
select minute, lane, name, sum(count) from gone group by minute, lane, name order by minute, lane, name
on conflict (minute, lane, name) do update set count = t.count + excluded.count

-- name: beat
-- Workers live.
insert into hawser.worker as k (worker, since, seen_at, about)
select w.worker, hawser.now($1), hawser.now($1), w.about from unnest($2::text[], $3::text[]) as w(worker, about) order by w.worker
on conflict (worker) do update set seen_at = excluded.seen_at, about = excluded.about

-- name: forget_worker
-- Workers have ended.
delete from hawser.worker where worker = any($1::text[])
