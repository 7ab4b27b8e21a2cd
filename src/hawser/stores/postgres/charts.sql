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
-- How often some events happened in the last so many minutes, by queue and task.
with clock as materialized (select hawser.now($1) as now)
select c.minute, l.queue, l.task, c.name, sum(c.count)::bigint as count from clock, lateral (
    select * from hawser.tally where minute > 0 and minute > now / 60000000 - $2 and name = any ($3)
    union all select * from hawser.counted where minute > 0 and minute > now / 60000000 - $2 and name = any ($3)
) as c join hawser.lane as l on l.id = c.lane
group by c.minute, l.queue, l.task, c.name
