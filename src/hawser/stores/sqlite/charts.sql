-- name: rollups
-- What happened since a minute, to one queue and task or to all.
select minute, event, sum(count) from hawser_tally
where minute >= :minute and (:queue is null or queue = :queue) and (:task is null or task = :task) group by minute, event

-- name: event_counts
-- How often some events happened from a minute to another, by queue and task.
select minute, queue, task, event, count from hawser_tally
where minute between :first and :last and event in (select value from json_each(:events))

-- name: times
-- For how long jobs waited and ran since a minute, by queue and task, of one queue or of all.
select queue, task, event, sum(count) from hawser_tally
where minute >= :minute and (event glob 'wait:*' or event glob 'run:*') and (:queue is null or queue = :queue)
group by queue, task, event

-- name: waiting_lanes
-- How many jobs wait in which lane.
select queue, task, priority, fresh, timed, retrying, grouped from hawser_depth
where fresh or timed or retrying order by queue, task, priority
