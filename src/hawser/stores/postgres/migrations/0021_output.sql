-- What runs write while they run, beside their jobs: only added to. `total` is the size of this chunk and of all before it, `place` its
-- place in the output of its run: the last chunk of a job tells how much there is.
create table hawser.output (
    at bigint not null,
    lease bigint not null,
    job uuid not null,
    number integer not null,
    place integer not null,
    total integer not null,
    attempt integer not null,
    body bytea not null,
    primary key (job, number)
) with (vacuum_truncate = off);
