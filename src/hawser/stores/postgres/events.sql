-- name: emit
-- An event has come, unless one of its name did before.
-- $1 a test's clock, $2 its name, $3 what it says, $4 microseconds that it is kept, $5 for how many milliseconds to wait for a lock.
select created, at, same from hawser.emit($1::bigint, $2::text, $3::bytea, $4::bigint, $5::integer)

-- name: event
-- An event that has come.
select e.name, e.body, e.at, e.until from hawser.event as e where e.name = $1

-- name: awaiting
-- How many waits for events last, up to a number.
select count(*) from (select from hawser.step as s where s.event is not null and s.kind = 'wait' limit $1) as w

-- name: hold_runs
-- Hold jobs that have just left running in this transaction.
-- $1 a test's clock, $2 the due time of held jobs, $3 the jobs, $4 their leases, $5 the steps, $6 what is kept of them, $7 microseconds that
-- they last, $8 the events.
select hawser.hold_runs($1::bigint, $2::bigint, $3::uuid[], $4::bigint[], $5::text[], $6::bytea[], $7::bigint[], $8::text[])

-- name: wake_waiting
-- Go on with jobs whose event has come or whose time is over; the answer is whether there may be more, and the lanes of those jobs.
-- Those who listen hear of them by the same commit.
-- $1 a test's clock, $2 how many at once, $3 whether to look for those whose time is over, too, $4 whether to tell those who listen.
select more, lanes, t.told
from hawser.wake_waiting($1::bigint, $2::integer, $3::boolean) as w cross join lateral (
    select count(pg_notify('hawser.wake', q.queue)) as told
    from (select distinct l.queue from hawser.lane as l where $4::boolean and l.id = any (w.lanes)) as q
) as t

-- name: come_to
-- What a wait of a run came to; no row when the lease is not the current one.
-- $1 a test's clock, $2 the job, $3 its lease, $4 the step, $5 the event, $6 what its jobs came to.
select now, name, kind, value, at, lease, until, event from hawser.come_to($1::bigint, $2::uuid, $3::bigint, $4::text, $5::text, $6::bytea)

-- name: forget_events
-- Events that were kept for long enough, and that no job has to go on with.
delete from hawser.event as e where e.name = any (array(
    select f.name from hawser.event as f where f.until <= hawser.now($1) and not exists (
        select from hawser.step as s where s.event = f.name and s.kind in ('wait', 'woken')
    ) order by f.until limit $2))
