-- Limits on queues and tasks: what code declares and what an operator chose, as JSON; what is in force, for claims; and the starts of
-- the last period, by slot, as JSON. How many run is not kept here: hawser_depth counts it.
create table hawser_limit (
    kind text not null,
    name text not null,
    declared text,
    chosen text,
    since integer,
    by text not null default 'app',
    running integer,
    starts integer,
    width integer not null default 0, -- of a slot, in microseconds
    slot integer not null default 0,
    slots text,
    primary key (kind, name)
) without rowid;

-- A claim asks how many jobs of a task run.
create index hawser_depth_task on hawser_depth (task);

-- Depth limits were set before; enqueue reads them where they are.
insert into hawser_limit (kind, name, chosen)
select 'queue', queue, json_object('max_depth', max_depth) from hawser_queue where max_depth is not null;
