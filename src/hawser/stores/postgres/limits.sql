-- name: rooms
-- What limits leave, as far as can be seen without waiting: epoch, what runs, slot and slots of each, with the rule.
-- $1 a test's clock, $2 the limits, $3 from which epoch on to look.
select hawser.now($1), m.id, m.epoch, l.running, l.starts, l.width, m.slot, m.slots,
    m.running - (
        select coalesce(sum(f.runs), 0)::integer from hawser.freed as f
        where f.ctid = any (array(select n from hawser.ended_runs(m.id, m.seen) as n)))
from unnest($2::integer[], $3::bigint[]) as w(id, epoch) cross join lateral (
    select * from hawser.meter as m where m.id = w.id and m.epoch >= w.epoch order by m.epoch desc limit 1
) as m join hawser.limited as l on l.id = m.id where (l.running is not null or l.starts is not null) and not l.per_group

-- name: take_limited
-- Claim jobs under limits, see the function.
select * from hawser.take_limited_jobs($1::bigint, $2::bigint, $3::integer[], $4::smallint[], $5::bigint[], $6::bigint[], $7::integer[],
    $8::text, $9::bigint, $10::bigint, $11::bigint, $12::uuid[], $13::integer[], $14::bigint[], $15::integer[], $16::integer[],
    $17::bigint, $18::integer)

-- name: limit
-- What is said of one queue or task; locked.
select declared, chosen, since, by from hawser.limited where kind = $1 and name = $2 for update

-- name: limits
-- What is said of all queues and tasks, with what runs and the starts of the last period.
select l.kind, l.name, l.declared, l.chosen, l.since, l.by, m.slot, m.slots, (
    select coalesce(sum(c.count), 0) from (
        select lane, name, count from hawser.tally where minute = 0 union all select lane, name, count from hawser.counted where minute = 0
    ) as c join hawser.lane as a on a.id = c.lane where c.name = '@running' and l.name = case l.kind when 'queue' then a.queue else a.task end
)::integer, hawser.now($1), case when l.per_group then (
    select count(*) from (
        select from hawser.lane as a join hawser.group_turn as t on t.lane = a.id
        where a.task = l.name and t.turn is null and (t.shut or t.due_at is null) and not t.idle limit $2
    ) as kept
) else 0 end::integer
from hawser.limited as l cross join lateral (
    select * from hawser.meter as m where m.id = l.id order by m.epoch desc limit 1
) as m order by l.kind, l.name

-- name: limited_queues
-- The queues that have a limit.
select name from hawser.limited where kind = 'queue'

-- name: put_limit
-- What is said of a queue or task, from now on.
insert into hawser.limited (kind, name, declared, chosen, since, by, running, starts, width, per_group, ordered)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (kind, name) do update set declared = excluded.declared, chosen = excluded.chosen, since = excluded.since, by = excluded.by,
    running = excluded.running, starts = excluded.starts, width = excluded.width, per_group = excluded.per_group, ordered = excluded.ordered
returning id

-- name: lock_meter
-- Claims wait until what is said of a queue or task is another.
select from hawser.meter as m where m.id = (select l.id from hawser.limited as l where l.kind = $1 and l.name = $2)
order by m.epoch desc limit 1 for update

-- name: make_meter
-- The meter of a limit. The starts go on to count when the period stays the same.
insert into hawser.meter (id, epoch) select $1::integer, 1 where not exists (select from hawser.meter where id = $1)

-- name: forget_starts
-- The period of a limit is another: its starts count no longer.
update hawser.meter set slot = 0, slots = array_fill(0, array[16]) where id = $1

-- name: forget_group_starts
-- The starts of the groups of a limit count no longer.
update hawser.group_meter set slot = 0, slots = null where limit_id = $1 and slots is not null

-- name: forget_heads
-- No order is kept of the groups of a limit.
update hawser.group_meter set head = null where limit_id = $1 and head is not null

-- name: reopen_groups
-- Let claims look at all groups of a task again that are kept back.
select hawser.reopen_groups($1::bigint, $2::text, null)

-- name: forget_groups
-- Forget what limits know of groups of which nothing counts any longer, among those behind the one that was looked at last.
-- $1 a test's clock, $2 and $3 the limit and the name of that group, $4 how many to look at. Gives the last that was looked at, how many were, and
-- how many were forgotten.
with page as materialized (
    select g.ctid as tid, g.limit_id, g.group_name from hawser.group_meter as g where (g.limit_id, g.group_name) > ($2::integer, $3::text)
    order by g.limit_id, g.group_name limit $4
), idle as materialized (
    select g.ctid as tid from hawser.group_meter as g left join hawser.limited as r on r.id = g.limit_id and r.per_group
    where g.ctid = any (array(select p.tid from page as p)) and (r.id is null or g.running = 0
        and (r.starts is null or g.slots is null or g.slot < hawser.now($1) / r.width - 16)
        and not exists (select from hawser.job as j where j.id = any (array[g.head])))
    for update of g skip locked
), gone as (
    delete from hawser.group_meter as m where m.ctid = any (array(select i.tid from idle as i)) returning m.limit_id
)
select p.limit_id, p.group_name, (select count(*) from page), (select count(*) from gone)
from page as p order by p.limit_id desc, p.group_name desc limit 1

-- name: recount
-- Count the runs of a limit anew.
select hawser.recount($1)

-- name: recount_all
-- Count the runs of all limits anew, and forget what was freed of limits that are gone.
with gone as (delete from hawser.freed as f where not exists (select from hawser.limited as l where l.id = f.meter))
select hawser.recount(l.id) from hawser.limited as l where l.running is not null order by l.id

-- name: drop_limit
-- Nothing is said of a queue or task.
with gone as (delete from hawser.limited where kind = $1 and name = $2 returning id),
groups as (delete from hawser.group_meter as m using gone as g where m.limit_id = g.id)
delete from hawser.meter as m using gone as g where m.id = g.id

-- name: set_depth
-- How deep a queue may wait.
insert into hawser.queue (queue, max_depth) values ($1, $2) on conflict (queue) do update set max_depth = excluded.max_depth

-- name: store_time
-- The store's time, for what is written next.
select hawser.now($1)
