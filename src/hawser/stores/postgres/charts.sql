-- name: rollups
-- The time; what happened in the last so many minutes, to one queue and task or to all.
with clock as materialized (select hawser.now($1) as now),
counts as (
    select c.minute, c.name, sum(c.count)::bigint as count from clock, lateral (
        select * from hawser.tally where minute > 0 and minute > now / 60000000 - $2
        union all select * from hawser.counted where minute > 0 and minute > now / 60000000 - $2
    ) as c left join hawser.lane as l on l.id = c.lane
    where ($3::text is null or l.queue = $3) and ($4::text is null or l.task = $4) group by c.minute, c.name
)
select c.now, (select json_agg(json_build_array(minute, name, count)) from counts)::text from clock as c

-- name: event_counts
-- How often some events happened in so many minutes up to some minutes ago, by queue and task; those of none have empty names. Names are looked at
-- row by row: in the index's condition they cost a descent for each minute and lane, three times as much.
with clock as materialized (select hawser.now($1) as now)
select c.minute, coalesce(l.queue, '') as queue, coalesce(l.task, '') as task, c.name, sum(c.count)::bigint as count from clock, lateral (
    select * from hawser.tally
    where minute > 0 and minute > now / 60000000 - $4::integer - $2 and minute <= now / 60000000 - $4
    union all select * from hawser.counted
    where minute > 0 and minute > now / 60000000 - $4 - $2 and minute <= now / 60000000 - $4
) as c left join hawser.lane as l on l.id = c.lane where c.name || '' = any ($3) and (l.id is not null or c.lane = 0)
group by c.minute, l.queue, l.task, c.name

-- name: times
-- For how long jobs waited and ran in the last so many minutes, by queue and task, of one queue or of all.
with clock as materialized (select hawser.now($1) as now),
counts as (
    select c.lane, c.name, sum(c.count)::bigint as count from clock, lateral (
        select * from hawser.tally where minute > 0 and minute > now / 60000000 - $2
        union all select * from hawser.counted where minute > 0 and minute > now / 60000000 - $2
    ) as c where c.name like 'wait:%' or c.name like 'run:%' group by c.lane, c.name
)
select l.queue, l.task, c.name, sum(c.count)::bigint as count from counts as c join hawser.lane as l on l.id = c.lane
where $3::text is null or l.queue = $3 group by l.queue, l.task, c.name
