-- name: emit
-- An event has come, unless one of its name did before.
insert into hawser_event (name, body, at, until) values (:name, :body, :now, :until) on conflict (name) do nothing

-- name: event
-- An event that has come.
select name, body, at, until from hawser_event where name = :name

-- name: waiting_for
-- The waits for an event that last: each with its job, and whether that is held for an event.
select s.seq, j.seq, j.queue, j.task, j.priority, j.group_name, j.held is not null and j.waits is null
from hawser_step as s indexed by hawser_step_awaiting cross join hawser_job as j on j.seq = s.job
where s.event = :event and s.event is not null and s.kind = 'wait' limit :limit

-- name: awaiting
-- How many waits for events last, up to a number.
select count(*) from (
    select 1 from hawser_step as s indexed by hawser_step_awaiting where s.event is not null and s.kind = 'wait' limit :most
)

-- name: overdue_waits
-- Waits whose time is over, as in `waiting_for`.
select s.seq, j.seq, j.queue, j.task, j.priority, j.group_name, j.held is not null and j.waits is null
from hawser_step as s indexed by hawser_step_due cross join hawser_job as j on j.seq = s.job
where s.until <= :now and s.until is not null and s.kind = 'wait' order by s.until limit :limit

-- name: first_end
-- When the first wait ends, and whether an event has more to wake.
select (select s.until from hawser_step as s indexed by hawser_step_due where s.until is not null and s.kind = 'wait' order by s.until limit 1),
    exists (select 1 from hawser_stirred)

-- name: lasting_wait
-- One wait, as in `waiting_for`.
select s.seq, j.seq, j.queue, j.task, j.priority, j.group_name, j.held is not null and j.waits is null
from hawser_step as s cross join hawser_job as j on j.seq = s.job where s.job = :job and s.name = :name and s.kind = 'wait'

-- name: wake
-- Waits are over: the next run says what each came to.
update hawser_step set kind = 'woken' where seq in (select value from json_each(?))

-- name: release_woken
-- Jobs that were held for an event wait no longer.
update hawser_job set held = null, run_at = :now where seq in (select value from json_each(:jobs))

-- name: stir
-- An event has more to wake than one transaction should.
insert into hawser_stirred (event) values (?) on conflict do nothing

-- name: stirred
-- An event that has more to wake: this one, or any.
select event from hawser_stirred where :event is null or event = :event limit 1

-- name: settle_down
-- An event has woken all that waited for it.
delete from hawser_stirred where event = ?

-- name: note_wait
-- A job waits. The time of a wait that lasts already goes on.
insert into hawser_step (job, name, kind, value, at, lease, until, event) values (:job, :name, 'wait', :value, :now, :lease, :until, :event)
on conflict (job, name) do update set kind = 'wait', value = excluded.value, event = excluded.event where kind in ('wait', 'woken')

-- name: hold_run
-- A job that has just left running is held.
update hawser_job set held = 0, waits = ? where seq = ?

-- name: record_wait
-- What a wait came to, with its start and its end.
insert into hawser_step (job, name, kind, value, at, lease, until, event) values (:job, :name, :kind, :value, :at, :lease, :until, :event)
on conflict (job, name) do update set kind = excluded.kind, value = excluded.value, lease = excluded.lease, until = excluded.until,
    event = excluded.event

-- name: forget_events
-- Events that were kept for long enough, and that no job has to go on with.
delete from hawser_event where name in (
    select e.name from hawser_event as e indexed by hawser_event_until where e.until <= :now and not exists (
        select 1 from hawser_step as s indexed by hawser_step_event where s.event = e.name and s.event is not null and s.kind in ('wait', 'woken')
    ) limit :limit)
