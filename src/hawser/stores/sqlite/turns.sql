-- name: open_group
-- A job of the group waits: from now on it has a turn, or a time at which it gets one.
insert into hawser_turn (queue, priority, task, group_name, turn, due_at) values (?, ?, ?, ?, ?, ?)
on conflict (queue, priority, task, group_name) do update set turn = coalesce(turn, excluded.turn),
    due_at = case when turn is null and excluded.turn is null then min(coalesce(due_at, excluded.due_at), excluded.due_at) end
where not shut

-- name: last_turn
-- The highest turn that was given.
select value from hawser_meta where name = 'turn'

-- name: note_turn
-- The highest turn that was given, from now on.
insert or replace into hawser_meta (name, value) values ('turn', ?)

-- name: groups_due
-- Groups of a lane whose next job has become due, or whose rate opens.
select group_name from hawser_turn indexed by hawser_turn_due
where queue = ? and priority = ? and task = ? and due_at is not null and due_at <= ? order by due_at limit ?

-- name: give_turn
-- The group takes its turn behind the others.
update hawser_turn set turn = ?, due_at = null, shut = 0 where queue = ? and priority = ? and task = ? and group_name = ?

-- name: turns
-- The groups of a lane that have a turn behind another, in order.
select turn, group_name, served from hawser_turn indexed by hawser_turn_next
where queue = ? and priority = ? and task = ? and turn is not null and turn > ? order by turn limit ?

-- name: ungrouped_turn
-- The turn of the jobs without a group.
select turn, served from hawser_turn where queue = ? and priority = ? and task = '' and group_name = ''

-- name: note_ungrouped
-- Their turn, from now on.
insert or replace into hawser_turn (queue, priority, task, group_name, turn, served) values (?, ?, '', '', ?, ?)

-- name: some_weight
-- Whether any group of a queue has a weight.
select 1 from hawser_weight where queue = ? limit 1

-- name: weight
-- The weight of a group.
select weight from hawser_weight where queue = ? and group_name = ?

-- name: due_of_group
-- The due jobs of one group in one lane that stand behind a place, in order of due time.
select run_at, seq, id, task, queue, priority, attempt, max_attempts, lease, enqueued_at, crashes, lane, [[claimed]]
from hawser_job indexed by hawser_job_group
where state = 'ready' and group_name is not null and queue = ? and task = ? and priority = ? and group_name = ? and lane = ?
    and (run_at, seq) > (?, ?) and run_at <= ? and (expires_at is null or expires_at > ?)
order by run_at, seq limit ?

-- name: first_of_lanes
-- The first due jobs of one group, so many of each lane, in order of due time.
select * from (
    select run_at, seq, id, task, queue, priority, attempt, max_attempts, lease, enqueued_at, crashes, lane, [[claimed]]
    from hawser_job indexed by hawser_job_group
    where state = 'ready' and group_name is not null and queue = :queue and task = :task and priority = :priority and group_name = :group and lane = 3
        and run_at <= :now and (expires_at is null or expires_at > :now)
    order by run_at, seq limit :most)
union all
select * from (
    select run_at, seq, id, task, queue, priority, attempt, max_attempts, lease, enqueued_at, crashes, lane, [[claimed]]
    from hawser_job indexed by hawser_job_group
    where state = 'ready' and group_name is not null and queue = :queue and task = :task and priority = :priority and group_name = :group and lane = 4
        and run_at <= :now and (expires_at is null or expires_at > :now)
    order by run_at, seq limit :most)
union all
select * from (
    select run_at, seq, id, task, queue, priority, attempt, max_attempts, lease, enqueued_at, crashes, lane, [[claimed]]
    from hawser_job indexed by hawser_job_group
    where state = 'ready' and group_name is not null and queue = :queue and task = :task and priority = :priority and group_name = :group and lane = 5
        and run_at <= :now and (expires_at is null or expires_at > :now)
    order by run_at, seq limit :most)

-- name: next_due_of_group
-- When the next job of one group in one lane is due.
select min(run_at) from (
    select min(run_at) as run_at from hawser_job indexed by hawser_job_group where state = 'ready' and group_name is not null
        and queue = :queue and task = :task and priority = :priority and group_name = :group and lane = 3
    union all select min(run_at) as run_at from hawser_job indexed by hawser_job_group where state = 'ready' and group_name is not null
        and queue = :queue and task = :task and priority = :priority and group_name = :group and lane = 4
    union all select min(run_at) as run_at from hawser_job indexed by hawser_job_group where state = 'ready' and group_name is not null
        and queue = :queue and task = :task and priority = :priority and group_name = :group and lane = 5)

-- name: visited
-- After a claim has served the group: its next turn, or the time of its next job. A claim that takes nothing writes nothing, or it would
-- wake the others.
update hawser_turn set turn = :turn, due_at = :due_at, shut = :shut, served = :served
where queue = :queue and priority = :priority and task = :task and group_name = :group
    and (turn is not :turn or due_at is not :due_at or shut is not :shut or served is not :served)

-- name: forget_group
-- Nothing of the group waits.
delete from hawser_turn where queue = ? and priority = ? and task = ? and group_name = ?

-- name: next_turn
-- When a group of one lane may be served: at once if one has a turn and a due job that is not left to others. An ordered group of which
-- a job is left to others does not count.
select case when exists (
    select 1 from hawser_turn as t where t.queue = :queue and t.priority = :priority and t.task = :task and t.turn is not null
        and (:without = '[]' or (not :ordered or not exists (
            select 1 from json_each(:without) as w cross join hawser_job as j
            where j.id = w.value and j.task = t.task and j.group_name = t.group_name)) and exists (
            select 1 from hawser_job as j indexed by hawser_job_group
            where j.state = 'ready' and j.group_name is not null and j.queue = t.queue and j.task = t.task and j.priority = t.priority
                and j.group_name = t.group_name and j.run_at <= :now and j.id not in (select value from json_each(:without))))
) then 0 else (
    select min(due_at) from hawser_turn indexed by hawser_turn_due
    where queue = :queue and priority = :priority and task = :task and due_at is not null) end

-- name: make_groups_due
-- After the clock was set back: groups whose next job was due before are due now.
update hawser_turn set due_at = ? where due_at > ? and due_at <= ?

-- name: forget_ungrouped
-- Turns of jobs without a group where no group is left.
delete from hawser_turn where task = '' and group_name = '' and not exists (
    select 1 from hawser_turn as t where t.queue = hawser_turn.queue and t.priority = hawser_turn.priority and t.task > '')

-- name: set_weight
-- How many places a turn a group is offered.
insert or replace into hawser_weight (queue, group_name, weight) values (:queue, :group, :weight)

-- name: clear_weight
-- The group is offered one place a turn.
delete from hawser_weight where queue = :queue and group_name = :group

-- name: weights
-- The weights of one queue, or of all.
select queue, group_name, weight from hawser_weight where :queue is null or queue = :queue order by queue, group_name
