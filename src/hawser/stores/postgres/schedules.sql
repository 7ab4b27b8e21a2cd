-- name: schedules
-- The schedules with these names, or all, a page of them.
select about from hawser.schedule
where name collate "C" > $2 and ($1::text[] is null or name = any($1)) order by name collate "C" limit $3

-- name: due_schedules
-- The store's time, the schedules that are due, longest first, and when the next one after those is.
with clock as materialized (select hawser.now($1) as now)
select c.now, (select s.due_at from hawser.schedule as s where s.due_at is not null and s.due_at > c.now order by s.due_at limit 1), d.about
from clock as c left join lateral (
    select s.about, s.due_at, s.name from hawser.schedule as s
    where s.due_at is not null and s.due_at <= c.now order by s.due_at, s.name limit $2
) as d on true order by d.due_at, d.name

-- name: next_schedules
-- The schedules whose time comes first.
select s.about from hawser.schedule as s where s.due_at is not null order by s.due_at, s.name limit $1

-- name: fire
-- Put schedules forward with their jobs; the answer has what became of each.
select hawser.fire($1::bigint, $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::uuid[], $8::bigint[], $9::text[],
    $10::integer[], $11::integer, $12::uuid[], $13::integer[], $14::bigint[], $15::integer[], $16::text[], $17::integer,
    $18::double precision, [[given from 19]])

-- name: delete_schedule
-- Forget a schedule.
delete from hawser.schedule where name = $1 returning name

-- name: clamp_declarations
-- After the clock was set back: no declaration lies in the future.
update hawser.declaration set seen_at = hawser.now($1) where seen_at > hawser.now($1)

-- name: forget_declarations
-- Let go of what no worker has declared for a while.
delete from hawser.declaration where seen_at <= hawser.now($1) - $2

-- name: declare
-- A worker declares this; when that is new it goes to the end.
insert into hawser.declaration as d (id, names, seen_at) values ($2, $3, hawser.now($1))
on conflict (id) do update set seen_at = greatest(d.seen_at, excluded.seen_at)

-- name: declarations
-- What living workers declare, oldest first.
select id, names from hawser.declaration order by seq
