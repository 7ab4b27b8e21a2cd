-- name: running_in_group
-- How many jobs of a task and group run, in all queues.
select count(*) from hawser_job indexed by hawser_job_group_running
where state = 'running' and group_name is not null and task = ? and group_name = ?

-- name: group_state
-- The job of an ordered group that started last, and the starts of the last period.
select head, slot, slots from hawser_known_group where task = ? and group_name = ?

-- name: note_group_starts
-- The starts of the last period, by slot.
insert into hawser_known_group (task, group_name, slot, slots) values (?, ?, ?, ?)
on conflict (task, group_name) do update set slot = excluded.slot, slots = excluded.slots

-- name: note_head
-- The job of an ordered group that started last.
insert into hawser_known_group (task, group_name, head) values (?, ?, ?)
on conflict (task, group_name) do update set head = excluded.head

-- name: live_head
-- That job, if it has not come to its end.
select seq, id, queue, priority, run_at, lane, state = 'running', 1 from hawser_job
where id = ? and state in ('ready', 'running')

-- name: first_of_group
-- The waiting job of a group that is due for longest, in any queue and priority.
select j.seq, j.id, j.queue, j.priority, j.run_at, j.lane, 0, 0
from hawser_turn as t indexed by hawser_turn_group cross join json_each('[3, 4, 5]') as l cross join hawser_job as j
where t.task = ? and t.group_name = ? and j.seq = (
    select f.seq from hawser_job as f indexed by hawser_job_group
    where f.state = 'ready' and f.group_name is not null and f.queue = t.queue and f.task = t.task and f.priority = t.priority
        and f.group_name = t.group_name and f.lane = l.value
    order by f.run_at, f.seq limit 1)
order by j.run_at, j.seq limit 1

-- name: due_one
-- One job, in the columns of `due`.
select run_at, seq, id, task, queue, priority, attempt, max_attempts, lease, enqueued_at, crashes, lane, [[claimed]]
from hawser_job where seq = ? and state = 'ready' and (expires_at is null or expires_at > ?)

-- name: reopen_group
-- Let the next claim look at a group that is kept back, in all lanes of a task.
update hawser_turn set due_at = ?, shut = 0 where task = ? and group_name = ? and turn is null and (shut or due_at is null)

-- name: reopen_lane
-- The same in one lane.
update hawser_turn set due_at = ?, shut = 0
where queue = ? and priority = ? and task = ? and group_name = ? and turn is null and (shut or due_at is null)

-- name: reopen_groups
-- The same for all groups of a task.
update hawser_turn set due_at = ?, shut = 0 where task = ? and turn is null and (shut or due_at is null)

-- name: reopen_all_groups
-- After the clock was set back: look at all groups again that are kept back.
update hawser_turn set due_at = ?, shut = 0 where turn is null and (shut or due_at is null)

-- name: shut_groups
-- How many groups of a task are kept back, by queue and priority, counted up to a limit.
select count(*) from (
    select 1 from hawser_turn indexed by hawser_turn_group where task = ? and turn is null and (shut or due_at is null) limit ?)

-- name: forget_group_starts
-- The starts of groups of a task count no longer.
update hawser_known_group set slot = 0, slots = null where task = ?

-- name: forget_heads
-- No order is kept of the groups of a task.
update hawser_known_group set head = null where task = ?

-- name: known_groups
-- What is known of groups, with the width of a slot.
select g.task, g.group_name, g.slot, g.slots, l.width, g.head is not null and exists (
    select 1 from hawser_job as j where j.id = g.head and j.state in ('ready', 'running'))
from hawser_known_group as g left join hawser_limit as l on l.kind = 'task' and l.name = g.task

-- name: forget_known_group
-- Nothing of a group counts any longer.
delete from hawser_known_group where task = ? and group_name = ?

-- name: place_in_group
-- Where a waiting job of a group stands.
select queue, task, priority, group_name, run_at, seq from hawser_job
where id = ? and state = 'ready' and held is null and group_name is not null

-- name: groups_before
-- How many groups of a queue and priority have their turn before a group, counted up to a limit. One without a turn is behind all.
select count(*) from (
    select distinct t.group_name from hawser_depth as d cross join hawser_turn as t indexed by hawser_turn_next
    where d.queue = :queue and d.priority = :priority and d.grouped > 0 and t.queue = :queue and t.priority = :priority and t.task = d.task
        and t.turn is not null and t.group_name <> :group and t.turn < coalesce((
            select o.turn from hawser_turn as o
            where o.queue = :queue and o.priority = :priority and o.task = :task and o.group_name = :group), 9223372036854775807)
    limit :most)

-- name: jobs_before
-- How many jobs of a group, queue and priority are due for longer than one, counted up to a limit.
select count(*) from (
    select 1 from hawser_depth as d cross join json_each('[3, 4, 5]') as l cross join hawser_job as j indexed by hawser_job_group
    where d.queue = :queue and d.priority = :priority and d.grouped > 0 and j.state = 'ready' and j.group_name is not null
        and j.queue = :queue and j.task = d.task and j.priority = :priority and j.group_name = :group and j.lane = l.value
        and j.run_at <= :run_at and (j.run_at < :run_at or j.seq < :seq)
    limit :most)
