-- Groups take turns. Waiting jobs with a group have a lane of 3 or more, where claims of jobs without one do not look, and are found by
-- their group. Workers of the release before leave them alone: they do not know these lanes.
create index hawser_job_group on hawser_job (queue, task, priority, group_name, lane, run_at, seq)
    where state = 'ready' and group_name is not null;
create index hawser_job_grouped on hawser_job (group_name, id) where group_name is not null;

-- How many waiting jobs of a lane have a group: a claim that finds none looks no further.
alter table hawser_depth add column grouped integer not null default 0;

-- The groups that have waiting jobs. With a turn: something is due, the lowest goes first. Without one: nothing is due before `due_at`.
-- The jobs of a queue and priority that have no group are one group, with no name and no task.
create table hawser_turn (
    queue text not null,
    priority integer not null,
    task text not null,
    group_name text not null,
    turn integer,
    due_at integer,
    served integer not null default 0, -- places that it has had
    primary key (queue, priority, task, group_name)
) without rowid;
create index hawser_turn_next on hawser_turn (queue, priority, task, turn) where turn is not null;
create index hawser_turn_due on hawser_turn (queue, priority, task, due_at) where due_at is not null;

-- How many places a turn a group is offered, where it is not 1.
create table hawser_weight (
    queue text not null,
    group_name text not null,
    weight integer not null,
    primary key (queue, group_name)
) without rowid;
