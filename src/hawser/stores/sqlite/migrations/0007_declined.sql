-- Jobs that a worker could not run: the last lease that was declined, since when no worker accepts the job, and the marks of the
-- signatures that it does not fit, as JSON. Beside the jobs, so that those which every worker can run pay nothing for it.
create table hawser_declined (
    id text primary key,
    lease integer not null,
    since integer not null,
    marks text not null
) without rowid;
