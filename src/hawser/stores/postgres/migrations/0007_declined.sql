-- Jobs that a worker could not run: the last lease that was declined, since when no worker accepts the job, and the marks of the
-- signatures that it does not fit, as JSON. Beside the jobs, so that those which every worker can run pay nothing for it.
create table hawser.declined (
    id uuid primary key,
    lease bigint not null,
    since bigint not null,
    marks text not null
);
