-- name: use_dependencies
-- From now on jobs wait for others here.
update hawser.control set dependencies = true, version = greatest(version + 1, hawser.now(null)) where not dependencies

-- name: dependencies_used
-- Whether any job here ever waited for another.
select dependencies from hawser.control

-- name: anything_left
-- Whether there may be jobs to go on with: of what is waited for something has ended or come, is to be looked at again, or its time is over.
select exists (select from hawser.ended_upstream) or exists (select from hawser.batch_change) or exists (select from hawser.stirred)
    or exists (select from hawser.batch as b where b.due)
    or exists (select from hawser.dependency as d where d.seen <= hawser.now($1))
    or exists (select from hawser.step as s where s.until <= hawser.now($1) and s.kind = 'wait')

-- name: hold_back
-- Hold new jobs back that wait for others.
-- $1 a test's clock, $2 the due time of held jobs, $3 jobs that wait, $4 whether any end will do, $5 what is kept of their own time,
-- $6 places among them, each with $7 a job that is waited for, $8 whether that was there before, $9 the day on which the oldest job that is
-- waited for was made, $10 whether to refuse unknown ones, $11 whether it is a death that they wait for.
select hawser.hold_back($1::bigint, $2::bigint, $3::uuid[], $4::boolean[], $5::bigint[], $6::integer[], $7::uuid[], $8::boolean[], $9::integer,
    $10::boolean, $11::boolean[])

-- name: look_again
-- Look again at some jobs that are waited for; the answer is whether there may be more.
-- $1 a test's clock, $2 whether only at those whose dependency is new, $3 how many.
select hawser.look_again($1::bigint, $2::boolean, $3::integer)

-- name: go_on
-- Add up what changed in batches, and go on with the jobs that wait for some of those that came to their end; the answer is whether
-- there were any, the lanes of jobs that were released, and whether there may be waits to go on with, too. Those who listen hear of
-- the released jobs by the same commit.
-- $1 a test's clock, $2 how many, $3 whether to tell those who listen.
select g.any_ended, g.lanes, exists (select from hawser.stirred), t.told
from hawser.go_on($1::bigint, $2::integer) as g cross join lateral (
    select count(pg_notify('hawser.wake', q.queue)) as told
    from (select distinct l.queue from hawser.lane as l where $3::boolean and l.id = any (g.lanes)) as q
) as t

-- name: tell_ended
-- Say of jobs that have just ended that they have, where others began to wait for them at the same moment: the statement that ended a
-- job could not see those. The transaction that commits last of the two sees the other: a producer that adds a job that waits looks
-- again after its commit, and a worker that ends one does it here. Only new dependencies are looked at, so this costs next to nothing
-- while there are none. The answer has a row for each that was told.
-- $1 ids.
insert into hawser.ended_upstream (job, state)
select e.id, coalesce((select f.state from hawser.failed as f where f.id = any (array[e.id])), 'done')
from unnest($1::uuid[]) as e(id) cross join lateral (
    select from hawser.dependency as d where d.job = any (array[e.id]) and d.seen is not null limit 1
) as d
where exists (select from hawser.dependency as y where y.seen is not null)
    and not exists (select from hawser.job as j where j.id = any (array[e.id]))
    and not exists (select from hawser.ended_upstream as u where u.job = e.id)
returning job

-- name: tell_missed
-- Say of jobs that others wait for that they have ended, where no process did; the answer is where to look next, nothing at the end.
-- $1 and $2 the dependency that was looked at last, $3 how many to look at. A job that is nowhere was done and not kept. One whose end is
-- told already is left to that word: it may have been removed while it was dead. The end of a batch is always told.
with page as materialized (
    select d.waiter, d.job, d.any_end, d.counted from hawser.dependency as d where (d.waiter, d.job) > ($1::uuid, $2::uuid)
    order by d.waiter, d.job limit $3
), ended as materialized (
    select distinct p.job, coalesce(f.state, 'done') as state from page as p left join hawser.failed as f on f.id = any (array[p.job])
    where not exists (select from hawser.job as j where j.id = any (array[p.job])) and (p.any_end or f.state is distinct from 'dead')
        and (p.counted is null or p.counted = 'ready') and not exists (select from hawser.batch as b where b.id = any (array[p.job]))
), told as (
    insert into hawser.ended_upstream (job, state) select e.job, e.state from ended as e
    where not exists (select from hawser.ended_upstream as u where u.job = e.job)
)
select p.waiter::text, p.job::text from page as p order by p.waiter desc, p.job desc limit (select case when count(*) < $3 then 0 else 1 end from page)

-- name: wait_instead
-- Those that wait for a job wait for another in its place.
update hawser.dependency set job = $2 where job = $1

-- name: waits
-- For how many jobs a held job was made to wait, and for how many it still waits.
select j.waits, (select count(*) from hawser.dependency as d where d.waiter = j.id) from hawser.job as j where j.id = $1 and j.waits is not null

-- name: waits_told
-- Some of the jobs that a held job waits for, oldest first, with their states.
select d.job::text, coalesce((select case when j.running then 'running' else 'ready' end from hawser.job as j where j.id = d.job),
    (select f.state from hawser.failed as f where f.id = d.job), (select b.state from hawser.batch as b where b.id = d.job), 'done'),
    (select b.name from hawser.batch as b where b.id = d.job)
from hawser.dependency as d where d.waiter = $1 order by d.job limit $2
