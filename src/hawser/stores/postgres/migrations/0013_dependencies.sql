-- Jobs that wait for others. `held` is what is kept of a job's own time meanwhile, `waits` for how many jobs it was made to wait.
alter table hawser.job add column held bigint, add column waits integer;

-- Whether any job here ever waited for another: those who use none of this pay for one look at this row.
alter table hawser.control add column dependencies boolean not null default false;

-- One job that another still waits for. `seen` is not null while a look may still find that the job ended before this row could be
-- seen: 0 before the first look, then its time.
create table hawser.dependency (
    waiter uuid not null,
    job uuid not null,
    any_end boolean not null,
    seen bigint,
    primary key (waiter, job)
);
create index dependency_job on hawser.dependency (job);
create index dependency_seen on hawser.dependency (seen) where seen is not null;

-- Jobs that came to their end and that others wait for: appended in the commit that ends them, taken away by who goes on with those.
create table hawser.ended_upstream (job uuid not null, state text not null);
alter table hawser.ended_upstream set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
