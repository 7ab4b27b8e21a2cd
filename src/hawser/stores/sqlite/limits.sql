-- name: controls
-- What a claim must obey: the pauses in force (1), the limits that bind claims with the starts of the last period (0), and the open
-- breakers with when the next probe may start (2).
select kind, name, 1 as paused, null as running, null as starts, null as width, null as slot, null as slots, 0 as per_group, 0 as ordered
from hawser_pause where until is null or until > :now
union all
select kind, name, 0, running, starts, width, slot, slots, per_group, ordered from hawser_limit where running is not null or starts is not null
union all
select 'task', task, 2, probe_at, null, null, null, null, 0, 0 from hawser_breaker where open

-- name: running_in_queue
-- How many jobs of a queue run.
select coalesce(sum(running), 0) from hawser_depth where queue = ?

-- name: running_of_task
-- How many jobs of a task run, in all queues.
select coalesce(sum(running), 0) from hawser_depth indexed by hawser_depth_task where task = ?

-- name: note_starts
-- The starts of the last period, by slot.
update hawser_limit set slot = ?, slots = ? where kind = ? and name = ?

-- name: limit
-- What is said of one queue or task.
select declared, chosen, since, by, width from hawser_limit where kind = :kind and name = :name

-- name: limits
-- What is said of all queues and tasks, with the starts of the last period.
select kind, name, declared, chosen, since, by, slot, slots from hawser_limit order by kind, name

-- name: put_limit
-- What is said of a queue or task, from now on. The starts go on to count when the period stays the same.
insert into hawser_limit (kind, name, declared, chosen, since, by, running, starts, width, per_group, ordered)
values (:kind, :name, :declared, :chosen, :since, :by, :running, :starts, :width, :per_group, :ordered)
on conflict (kind, name) do update set declared = excluded.declared, chosen = excluded.chosen, since = excluded.since, by = excluded.by,
    running = excluded.running, starts = excluded.starts, width = excluded.width, per_group = excluded.per_group, ordered = excluded.ordered,
    slot = case when (width, per_group) = (excluded.width, excluded.per_group) then slot else 0 end,
    slots = case when (width, per_group) = (excluded.width, excluded.per_group) then slots end

-- name: drop_limit
-- Nothing is said of a queue or task.
delete from hawser_limit where kind = :kind and name = :name

-- name: set_depth
-- How deep a queue may wait.
insert into hawser_queue (queue, max_depth) values (:queue, :max_depth)
on conflict (queue) do update set max_depth = excluded.max_depth
