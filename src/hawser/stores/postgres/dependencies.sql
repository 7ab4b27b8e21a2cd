-- name: use_dependencies
-- From now on jobs wait for others here.
update hawser.control set dependencies = true, version = greatest(version + 1, hawser.now(null)) where not dependencies

-- name: hold_back
-- Hold new jobs back that wait for others.
-- $1 a test's clock, $2 the due time of held jobs, $3 jobs that wait, $4 whether any end will do, $5 what is kept of their own time,
-- $6 places among them, each with $7 a job that is waited for, $8 whether that was there before, $9 the day on which the oldest job that is
-- waited for was made, $10 whether to refuse unknown ones.
select hawser.hold_back($1::bigint, $2::bigint, $3::uuid[], $4::boolean[], $5::bigint[], $6::integer[], $7::uuid[], $8::boolean[], $9::integer,
    $10::boolean)

-- name: go_on
-- Go on with the jobs that wait for some of those that came to their end; the answer is whether there were any, and the lanes of
-- jobs that were released.
select any_ended, lanes from hawser.go_on($1::bigint, $2::integer)

-- name: wait_instead
-- Those that wait for a job wait for another in its place.
update hawser.dependency set job = $2 where job = $1

-- name: waits
-- For how many jobs a held job was made to wait, and for how many it still waits.
select j.waits, (select count(*) from hawser.dependency as d where d.waiter = j.id) from hawser.job as j where j.id = $1 and j.held is not null

-- name: waits_told
-- Some of the jobs that a held job waits for, oldest first, with their states.
select d.job::text, coalesce((select case when j.running then 'running' else 'ready' end from hawser.job as j where j.id = d.job),
    (select f.state from hawser.failed as f where f.id = d.job), 'done')
from hawser.dependency as d where d.waiter = $1 order by d.job limit $2
