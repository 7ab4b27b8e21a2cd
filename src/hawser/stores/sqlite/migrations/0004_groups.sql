-- The dead jobs and the fingerprints of their errors. Beside the jobs, so that those which end well pay nothing for it.
create table hawser_dead (
    seq integer primary key, -- the job's
    id text not null,
    task text not null,
    queue text not null,
    fingerprint text -- null until a process has made it, of a job that died before fingerprints were kept
);

create index hawser_dead_group on hawser_dead (task, fingerprint, id);
create index hawser_dead_ungrouped on hawser_dead (seq) where fingerprint is null;

-- How many dead jobs have which fingerprint; kept by the triggers below, also when an older version writes.
create table hawser_group (
    task text not null,
    fingerprint text not null,
    queue text not null,
    count integer not null,
    primary key (task, fingerprint, queue)
) without rowid;

create trigger hawser_dead_added after insert on hawser_dead when new.fingerprint is not null begin insert into hawser_group (task, fingerprint, queue, count) values (new.task, new.fingerprint, new.queue, 1) on conflict (task, fingerprint, queue) do update set count = count + 1; end;

create trigger hawser_dead_named after update of fingerprint on hawser_dead when old.fingerprint is null and new.fingerprint is not null begin insert into hawser_group (task, fingerprint, queue, count) values (new.task, new.fingerprint, new.queue, 1) on conflict (task, fingerprint, queue) do update set count = count + 1; end;

create trigger hawser_dead_gone after delete on hawser_dead when old.fingerprint is not null begin update hawser_group set count = count - 1 where task = old.task and fingerprint = old.fingerprint and queue = old.queue; delete from hawser_group where task = old.task and fingerprint = old.fingerprint and queue = old.queue and count = 0; end;

insert into hawser_dead (seq, id, task, queue)
select seq, id, task, queue from hawser_job indexed by hawser_job_failed where state in ('dead', 'cancelled') and state = 'dead';
