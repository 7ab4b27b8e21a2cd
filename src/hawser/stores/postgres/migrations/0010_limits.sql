-- Limits on queues and tasks: what code declares and what an operator chose, as JSON; and what is in force, for claims.
create table hawser.limited (
    id integer primary key default 1 + (random() * 2147483646)::integer,
    kind text not null,
    name text not null,
    declared text,
    chosen text,
    since bigint,
    by text not null default 'app',
    running integer,
    starts integer,
    width bigint not null default 0, -- of a slot, in microseconds
    unique (kind, name)
);

-- How many jobs of a limit run, and the starts of the last period by slot. Claims lock the row, and read the newest version of it. While
-- any transaction holds an old snapshot, each version of a row has to be stepped over: so a row is left after some changes, for one
-- of the next epoch.
create table hawser.meter (
    id integer not null,
    epoch bigint not null,
    running integer not null default 0,
    slot bigint not null default 0,
    slots integer[] not null default array_fill(0, array[16]),
    folded_at bigint not null default 0,
    changes integer not null default 0,
    primary key (id, epoch)
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Runs that have ended since a claim last looked. Only added to, since a run may end in a transaction that lasts; claims fold them in.
create table hawser.freed (
    meter integer not null,
    at bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index freed_meter on hawser.freed (meter, at);

-- The meters that count a running job. Null in jobs that no limit counts.
alter table hawser.job add column meters integer[];

-- A run that ends, in whatever way, frees its place in the same write. A trigger, since workers of the release before do not know of it.
create function hawser.free_places() returns trigger language plpgsql as $$
begin
    insert into hawser.freed (meter, at) select m, (extract(epoch from clock_timestamp()) * 1000000)::bigint from unnest(old.meters) as m;
    return null;
end
$$;
create trigger job_removed after delete on hawser.job for each row when (old.meters is not null and old.running)
    execute function hawser.free_places();
create trigger job_left after update of running on hawser.job for each row when (old.meters is not null and old.running and not new.running)
    execute function hawser.free_places();

-- Depth limits were set before; enqueue reads them where they are.
insert into hawser.limited (kind, name, chosen)
select 'queue', queue, json_build_object('max_depth', max_depth)::text from hawser.queue where max_depth is not null;
insert into hawser.meter (id, epoch) select id, 1 from hawser.limited;
