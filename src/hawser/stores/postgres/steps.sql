-- name: record_steps
-- What runs have achieved. The fence: a lease that is not the current one records nothing. The first record under a name stays; from a
-- new one on attempts are counted, so the run is the first again. The answer has what stands under the names as far as this
-- statement can see it. No name of a job may stand twice in one call.
-- $1 a test's clock, $2 ids, $3 leases, $4 names, $5 kinds, $6 values, $7 microseconds that a sleep lasts.
with clock as materialized (select hawser.now($1) as now),
want as materialized (
    select * from unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::bigint[])
        with ordinality as w(id, lease, name, kind, value, lasts, n)
),
run as materialized (
    select j.id, j.lease, j.lane, j.attempt from want as w join hawser.job as j on j.id = any (array[w.id])
    where j.lease = w.lease and j.running order by j.id for no key update of j
),
held as materialized (select distinct id, lease, lane, attempt from run),
kept as (
    insert into hawser.step as s (job, name, kind, value, at, lease, until)
    select w.id, w.name, w.kind, w.value, c.now, w.lease, c.now + w.lasts
    from clock as c, want as w join held as r on r.id = w.id and r.lease = w.lease order by w.id, w.n
    on conflict (job, name) do nothing returning s.job, s.name, s.kind, s.value, s.at, s.lease, s.until, s.event
),
first as (
    update hawser.job as j set attempt = 1 from held as r
    where r.attempt > 1 and j.id = any (array[r.id]) and exists (select from kept as k where k.job = r.id)
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select c.now / 60000000, r.lane, 'steps', count(*) from clock as c, kept as k join held as r on r.id = k.job group by 1, 2
)
select w.n, c.now, e.* from clock as c, want as w join held as r on r.id = w.id and r.lease = w.lease left join lateral (
    select k.name, k.kind, k.value, k.at, k.lease, k.until, k.event from kept as k where k.job = w.id and k.name = w.name
    union all
    select s.name, s.kind, s.value, s.at, s.lease, s.until, s.event from hawser.step as s where s.job = any (array[w.id]) and s.name = w.name
) as e on true

-- name: record_inside
-- Record a step on the connection of its handler; null when the run stands no more, or the name is taken.
select hawser.record_inside($1::bigint, $2::uuid, $3::bigint, $4::text, $5::bytea)

-- name: recorded_step
-- What is kept under a name, which another call of the same run has recorded a moment ago.
select hawser.now($1), s.name, s.kind, s.value, s.at, s.lease, s.until, s.event from hawser.step as s where s.job = $2 and s.name = $3

-- name: steps
-- The steps of a job, in the order of their records, and the time.
select hawser.now($1), s.name, s.kind, s.value, s.at, s.lease, s.until, s.event from hawser.step as s where s.job = $2 order by s.seq

-- name: place_of_step
-- Where a step stands in the order of records.
select s.seq from hawser.step as s where s.job = $1 and s.name = $2

-- name: forget_later_steps
-- Forget what was recorded after a place.
delete from hawser.step as s where s.job = $1 and s.seq > $2

-- name: forget_steps
-- The steps of jobs that are gone.
delete from hawser.step as s where s.job = any ($1::uuid[]) and not exists (select from hawser.job as j where j.id = s.job)
