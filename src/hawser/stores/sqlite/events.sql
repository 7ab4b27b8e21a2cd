-- name: emit
-- An event has come, unless one of its name did before.
insert into hawser_event (name, body, at, until) values (:name, :body, :now, :until) on conflict (name) do nothing

-- name: event
-- An event that has come.
select name, body, at, until from hawser_event where name = :name

-- name: waiting_for
-- The waits for an event that last.
select s.job, s.name from hawser_step as s indexed by hawser_step_event where s.event = ? and s.event is not null and s.kind = 'wait'

-- name: awaiting
-- How many waits for events last, up to a number.
select count(*) from (
    select 1 from hawser_step as s indexed by hawser_step_awaiting where s.event is not null and s.kind = 'wait' limit :most
)

-- name: overdue_waits
-- Waits whose time is over.
select s.job, s.name from hawser_step as s indexed by hawser_step_due
where s.until <= :now and s.until is not null and s.kind = 'wait' order by s.until limit :limit

-- name: wake
-- A wait is over: the next run says what it came to.
update hawser_step set kind = 'woken' where job = ? and name = ? and kind = 'wait'

-- name: waiting_job
-- The id of a job that is held for an event.
select id, queue, task from hawser_job where seq = ? and held is not null and waits is null

-- name: note_wait
-- A job waits. The time of a wait that lasts already goes on.
insert into hawser_step (job, name, kind, value, at, lease, until, event) values (:job, :name, 'wait', :value, :now, :lease, :until, :event)
on conflict (job, name) do update set kind = 'wait', value = excluded.value, event = excluded.event where kind in ('wait', 'woken')

-- name: hold_run
-- A job that has just left running is held.
update hawser_job set held = 0, waits = ? where seq = ?

-- name: record_wait
-- What a wait came to.
insert into hawser_step (job, name, kind, value, at, lease, until, event) values (:job, :name, :kind, :value, :now, :lease, null, :event)
on conflict (job, name) do update set kind = excluded.kind, value = excluded.value, at = excluded.at, lease = excluded.lease, event = excluded.event

-- name: forget_events
-- Events that were kept for long enough, and that no job has to go on with.
delete from hawser_event where name in (
    select e.name from hawser_event as e indexed by hawser_event_until where e.until <= :now and not exists (
        select 1 from hawser_step as s indexed by hawser_step_event where s.event = e.name and s.event is not null and s.kind in ('wait', 'woken')
    ) limit :limit)
