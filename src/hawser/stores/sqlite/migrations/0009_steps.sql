-- What runs have achieved, beside their jobs: only added to, the first record under a name stays. `until` is the end of a sleep.
create table hawser_step (
    seq integer primary key,
    job integer not null,
    name text not null,
    kind text not null,
    value blob not null,
    at integer not null,
    lease integer not null,
    until integer,
    unique (job, name)
);
