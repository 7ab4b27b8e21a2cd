-- The breakers of tasks: what is said of each, as JSON; whether it is open; and its probes, which claims write.
create table hawser_breaker (
    task text primary key,
    about text not null,
    open integer not null,
    probe_at integer, -- null: no probe is taken
    probe_every integer,
    probe_id text,
    probe_lease integer
) without rowid;
