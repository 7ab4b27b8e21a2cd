-- name: holders
-- Who last claimed these jobs, and under which lease.
select id::text, lease, worker from hawser.job where id = any($1)
union all select id::text, lease, worker from hawser.failed where id = any($1)
union all select id::text, lease, worker from hawser.done
where day >= least($2::integer, hawser.now($3) / 86400000000) - 1 and id = any($1)

-- name: asked_to_stop
-- The runs of some workers that are to end.
select id::text, lease from hawser.job where cancel_asked and running and worker = any($1::text[])

-- name: extend
-- Lengthen leases, run out or not, never past the attempt's timeout, and note their progress. A run whose handler is about to settle it
-- in a transaction of its own is passed over: no other lease waits for the end of that transaction.
with clock as materialized (select hawser.now($1) as now),
want as materialized (
    select w.* from (
        select * from unnest($2::uuid[], $3::bigint[], $4::bytea[]) as w(id, lease, progress) order by w.id
    ) as w cross join lateral (
        select from hawser.job as j where j.id = any (array[w.id]) and j.lease = w.lease and j.running for no key update skip locked
    ) as free
)
update hawser.job as j set progress = coalesce(w.progress, j.progress),
    leased_for = case when least(c.now + $5, j.started_at + (j.timeout * 1000000)::bigint + $6) > j.lease_until
        then least(c.now + $5, j.started_at + (j.timeout * 1000000)::bigint + $6) - c.now else j.leased_for end,
    lease_until = greatest(j.lease_until, least(c.now + $5, j.started_at + (j.timeout * 1000000)::bigint + $6))
from clock as c, want as w
where j.id = any (array[w.id]) and j.lease = w.lease and j.running
    and greatest(j.lease_until, least(c.now + $5, j.started_at + (j.timeout * 1000000)::bigint + $6)) > c.now
returning j.id::text, j.lease, j.cancel_asked

-- name: standing_runs
-- Of runs whose leases were not lengthened, those that could have been.
with clock as materialized (select hawser.now($1) as now)
select j.id::text, j.lease, j.cancel_asked from clock as c, unnest($2::uuid[], $3::bigint[]) as w(id, lease)
join hawser.job as j on j.id = any (array[w.id])
where j.lease = w.lease and j.running
    and greatest(j.lease_until, least(c.now + $4, j.started_at + (j.timeout * 1000000)::bigint + $5)) > c.now

-- name: expired
-- The runs whose lease has run out, and whether it was ever lengthened, among the claims that have been due for a look since `$3`;
-- and how many claims are.
with clock as materialized (select hawser.now($1) as now),
look as materialized (
    select g.id, g.jobs from hawser.granted as g, clock as c where g.look_at between $3 and c.now order by g.look_at limit 1000
)
select (select count(*) from look) as claims, e.* from (select 1) as one left join lateral (
    select j.id::text, j.lease, j.attempt, j.max_attempts, j.returned, j.cancel_asked, j.worker, j.lane,
        j.lease_until - j.leased_for > j.started_at as renewed
    from look as g cross join lateral unnest(g.jobs) as w(id) join hawser.job as j on j.id = any (array[w.id]), clock as c
    where j.running and j.granted = g.id and j.lease_until <= c.now order by j.lease_until, j.seq limit $2
) as e on true

-- name: look_later
-- A claim is looked at again when the next of its leases may run out, and forgotten when none of its runs is left.
with clock as materialized (select hawser.now($1) as now),
look as materialized (
    select g.id, g.jobs from hawser.granted as g, clock as c where g.look_at between $2 and c.now
    order by g.look_at limit 1000 for update of g skip locked
),
left_ as materialized (
    select g.id, min(j.lease_until) as until
    from look as g cross join lateral unnest(g.jobs) as w(id) join hawser.job as j on j.id = any (array[w.id])
    where j.running and j.granted = g.id group by g.id
),
gone as (
    delete from hawser.granted as g using look as k where g.id = k.id and not exists (select from left_ as l where l.id = k.id)
)
update hawser.granted as g set look_at = l.until from left_ as l where g.id = l.id

-- name: cut_leases
-- After the clock was set back: no lease may have more time left than it was given. It waits for a run that is about to be settled in a
-- transaction of its handler's own, and does not pass it over: should that roll back, nothing would cut the lease later. Such a
-- transaction is cut off when it does nothing for ten seconds.
with clock as materialized (select hawser.now($1) as now),
cut as (
    update hawser.job as j set lease_until = c.now + j.leased_for from clock as c
    where j.id in (select unnest(g.jobs) from hawser.granted as g) and j.running and j.lease_until - c.now > j.leased_for
    returning j.granted, j.lease_until
)
update hawser.granted as g set look_at = least(g.look_at, e.until)
from (select granted, min(lease_until) as until from cut group by granted) as e where g.id = e.granted
