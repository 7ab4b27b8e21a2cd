-- Groups take turns. Waiting jobs with a group have a kind of 4 or more, where claims of jobs without one do not look, and are found by
-- their group. Workers of the release before leave them alone: they do not know these kinds.
create index concurrently if not exists job_group on hawser.job (lane, group_name, kind, run_at, seq) where group_name is not null;
create index concurrently if not exists job_group_id on hawser.job (group_name, id) where group_name is not null;
create index concurrently if not exists done_group_id on hawser.done (group_name, id) where group_name is not null;
create index concurrently if not exists failed_group_id on hawser.failed (group_name, id) where group_name is not null;

-- Whether jobs of a lane may have a group: claims of other lanes look no further.
alter table hawser.lane add column grouped boolean not null default false;

create sequence hawser.turns;

-- The groups of a lane that have waiting jobs. With a turn: something is due, the lowest goes first. Without one: nothing is due before
-- `due_at`. No job of it that waits was due before `begin_at`: claims read from there.
create table hawser.group_turn (
    lane integer not null,
    group_name text not null,
    turn bigint,
    due_at bigint,
    begin_at bigint not null,
    served bigint not null default 0, -- places that it has had
    primary key (lane, group_name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index group_turn_next on hawser.group_turn (lane, turn) where turn is not null;
create index group_turn_due on hawser.group_turn (lane, due_at) where due_at is not null;

-- Groups that jobs have come to, and when the first of those is due. Whoever adds a job, in a transaction that may last, only writes
-- here: a claim adds it to the groups.
create table hawser.arrived (
    seq bigint generated always as identity,
    lane integer not null,
    group_name text not null,
    due_at bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index arrived_lane on hawser.arrived (lane);

-- The turns of the jobs without a group: they are one group of their queue and priority.
create table hawser.ungrouped_turn (
    queue text not null,
    priority smallint not null,
    turn bigint not null,
    served bigint not null,
    primary key (queue, priority)
) with (fillfactor = 10);

-- How many places a turn a group is offered, where it is not 1.
create table hawser.weight (
    queue text not null,
    group_name text not null,
    weight integer not null,
    primary key (queue, group_name)
);
