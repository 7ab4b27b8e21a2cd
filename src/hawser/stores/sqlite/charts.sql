-- name: rollups
-- What happened since a minute, to one queue and task or to all.
select minute, event, sum(count) from hawser_tally
where minute >= :minute and (:queue is null or queue = :queue) and (:task is null or task = :task) group by minute, event

-- name: event_counts
-- How often some events happened since a minute, by queue and task.
select minute, queue, task, event, count from hawser_tally
where minute >= :minute and event in (select value from json_each(:events))

-- name: waiting_lanes
-- How many jobs wait in which lane.
select queue, task, priority, fresh, timed, retrying, grouped from hawser_depth
where fresh or timed or retrying order by queue, task, priority
