-- Limits per group. What such a limit says stands beside the other limits; its meter's row is what claims lock.
alter table hawser.limited add column per_group boolean not null default false, add column ordered boolean not null default false;

-- What limits per group know of a group: how many jobs of it run, the job of an ordered group that started last, and the starts of the last
-- period by slot. Written under the lock of the limit's meter. A group of which nothing counts has no row.
create table hawser.group_meter (
    limit_id integer not null,
    group_name text not null,
    running integer not null default 0,
    head uuid,
    slot bigint not null default 0,
    slots integer[],
    primary key (limit_id, group_name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- A group that is shut has no turn, and no job that comes to it opens it: a limit keeps it back, until `due_at` or until a job of the group
-- leaves. Then a row in `arrived` says that claims are to look at it again.
alter table hawser.group_turn add column shut boolean not null default false;
alter table hawser.arrived add column reopens boolean not null default false;

-- Of which group a job has left, and how many runs that are: none when it waited.
alter table hawser.freed add column group_name text, add column runs integer not null default 1;

-- A waiting job of a group that leaves may have kept the others of its group back.
drop trigger job_removed on hawser.job;
create trigger job_removed after delete on hawser.job for each row
    when (old.meters is not null and old.running or old.group_name is not null and not old.running) execute function hawser.free_places();
create trigger job_moved after update of lane, run_at on hawser.job for each row
    when (old.group_name is not null and not old.running and not new.running) execute function hawser.free_places();
