-- name: use_expiries
-- From now on jobs expire here.
update hawser.control set expiries = true, version = greatest(version + 1, hawser.now(null)) where not expiries

-- name: expire
-- Cancel jobs that wait and are past their expiry: how many, whether others wait for one of them or a batch counts one, and how long
-- the server took, in seconds.
-- $1 a test's clock, $2 how many, $3 the reason, $4 from which expiry on to look.
with clock as materialized (select hawser.now($1) as now),
past as materialized (
    select p.tid from clock as c cross join lateral (
        select j.ctid as tid from hawser.job as j
        where j.expires_at is not null and j.expires_at >= $4 and j.expires_at <= c.now and not j.running
        order by j.expires_at limit $2 for update skip locked
    ) as p
),
gone as (delete from hawser.job as j where j.ctid = any (array(select tid from past)) returning j.*),
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
    returning job
),
batched as (
    insert into hawser.batch_change (batch, given_up) select g.batch, count(*) from gone as g where g.batch is not null group by g.batch
    returning batch
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select case when p.name like '@%' then 0 else c.now / 60000000 end, g.lane, p.name, sum(p.sign)
    from clock as c, gone as g cross join lateral (
        values (case g.kind % 4 when 3 then '@retrying' when 2 then '@timed' else '@fresh' end, -1), ('@cancelled', 1), ('cancelled', 1),
            (case when g.held is not null then '@held' end, -1)
    ) as p(name, sign) where p.name is not null group by 1, 2, 3
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select c.now, (select count(*) from gone), exists (select from told) or exists (select from batched),
    extract(epoch from clock_timestamp() - statement_timestamp())::float8
from clock as c
