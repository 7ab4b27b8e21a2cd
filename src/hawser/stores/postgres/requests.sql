-- name: claim_request
-- Begin a request that is new, or forgotten: its time is over and none of its jobs is kept. Waits for a transaction that has begun the same.
insert into hawser.request as r (caller, key, digest, jobs, day, until) values ($2, $3, $4, '{}', 0, hawser.now($1) + $5)
on conflict (caller, key) do update set digest = excluded.digest, jobs = excluded.jobs, day = excluded.day, until = excluded.until
where r.until <= hawser.now($1) and hawser.there(r.jobs, r.day) = '{}'
returning true

-- name: recall_request
-- What was answered to a request.
select digest, jobs::text[] from hawser.request where caller = $1 and key = $2

-- name: knows_request
-- Whether a caller gave this key to a request before, which is not forgotten.
select exists (
    select from hawser.request as r where r.caller = $2 and r.key = $3
        and (r.until > hawser.now($1) or hawser.there(r.jobs, r.day) <> '{}')
)

-- name: remember_request
-- Keep what was answered to a request.
update hawser.request set jobs = $4::uuid[], day = least($5::integer, hawser.now($1) / 86400000000) - 1 where caller = $2 and key = $3

-- name: known_jobs
-- What tells whether another job is the same as one of these: task, queue and payload.
select s.id::text, l.task, l.queue, s.body
from hawser.standing($2::uuid[], (least($3::integer, hawser.now($1) / 86400000000) - 1)::integer) as s join hawser.lane as l on l.id = s.lane

-- name: forget_requests
-- Let go of some requests that are over; those of which a job is kept are looked at again later.
with clock as materialized (select hawser.now($1) as now),
over as materialized (
    select r.caller, r.key, hawser.there(r.jobs, r.day) <> '{}' as kept from hawser.request as r
    where r.until <= (select now from clock) order by r.until limit $2 for update of r skip locked
),
later as (
    update hawser.request as r set until = c.now + $3 from over as o, clock as c
    where o.kept and r.caller = o.caller and r.key = o.key
)
delete from hawser.request as r using over as o where not o.kept and r.caller = o.caller and r.key = o.key
