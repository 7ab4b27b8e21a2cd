-- Limits per group. What such a limit says stands in hawser_limit, how many jobs of a group run is counted by this index.
alter table hawser_limit add column per_group integer not null default 0;
alter table hawser_limit add column ordered integer not null default 0;
create index hawser_job_group_running on hawser_job (task, group_name) where state = 'running' and group_name is not null;

-- A group that is shut has no turn, and no job that comes to it opens it: a limit keeps it back, until `due_at` or until a job of the group
-- leaves.
alter table hawser_turn add column shut integer not null default 0;
create index hawser_turn_group on hawser_turn (task, group_name);

-- What limits per group know of a group: the job of an ordered group that started last, and the starts of the last period, by slot, as
-- JSON.
create table hawser_known_group (
    task text not null,
    group_name text not null,
    head text,
    slot integer not null default 0,
    slots text,
    primary key (task, group_name)
) without rowid;
