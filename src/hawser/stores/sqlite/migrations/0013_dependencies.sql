-- Jobs that wait for others. `held` is what is kept of a job's own time meanwhile, `waits` for how many jobs it was made to wait. A row
-- of `hawser_dependency` is one job that another still waits for.
alter table hawser_job add column held integer;
alter table hawser_job add column waits integer;
alter table hawser_depth add column held integer not null default 0;
create table hawser_dependency (
    waiter text not null,
    job text not null,
    any_end integer not null,
    primary key (waiter, job)
) without rowid;
create index hawser_dependency_job on hawser_dependency (job);
