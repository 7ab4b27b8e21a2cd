-- name: schedules
-- The schedules with these names, or all, a page of them.
select about from hawser_schedule
where name > :after and (:names is null or name in (select value from json_each(:names))) order by name limit :limit

-- name: due_schedules
-- The schedules that are due, longest first.
select about from hawser_schedule indexed by hawser_schedule_due
where due_at is not null and due_at <= :now order by due_at, name limit :limit

-- name: next_schedule
-- When the next one after those is due.
select due_at from hawser_schedule indexed by hawser_schedule_due
where due_at is not null and due_at > :now order by due_at limit 1

-- name: next_schedules
-- The schedules whose time comes first.
select about from hawser_schedule indexed by hawser_schedule_due where due_at is not null order by due_at, name limit :limit

-- name: revisions
-- The current revisions of these schedules.
select name, revision from hawser_schedule where name in (select value from json_each(:names))

-- name: live
-- Which of these jobs are still to run, or run.
select id from hawser_job where id in (select value from json_each(:ids)) and state in ('ready', 'running')

-- name: ticks
-- Which of these ticks have their job.
select j.schedule, j.tick from json_each(:ticks) as want cross join hawser_job as j indexed by hawser_job_tick
where j.tick is not null and j.schedule = want.value ->> 0 and j.tick = want.value ->> 1

-- name: put_schedule
-- A schedule as it stands from now on. Its revision was checked, and no other process writes meanwhile.
insert or replace into hawser_schedule (name, revision, due_at, about) values (?, ?, ?, ?)

-- name: delete_schedule
-- Forget a schedule.
delete from hawser_schedule where name = :name

-- name: clamp_declarations
-- After the clock was set back: no declaration lies in the future.
update hawser_declaration set seen_at = :now where seen_at > :now

-- name: forget_declarations
-- Let go of what no worker has declared for a while.
delete from hawser_declaration where seen_at <= :before

-- name: declare
-- A worker declares this; when that is new it goes to the end.
insert into hawser_declaration (id, names, seen_at) values (:id, :names, :now)
on conflict (id) do update set seen_at = excluded.seen_at

-- name: declarations
-- What living workers declare, oldest first.
select id, names from hawser_declaration order by seq
