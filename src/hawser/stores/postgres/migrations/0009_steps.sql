-- What runs have achieved, beside their jobs: only added to, the first record under a name stays. `until` is the end of a sleep.
create table hawser.step (
    seq bigint generated always as identity,
    at bigint not null,
    lease bigint not null,
    until bigint,
    job uuid not null,
    name text not null,
    kind text not null,
    value bytea not null,
    primary key (job, name)
) with (vacuum_truncate = off);
