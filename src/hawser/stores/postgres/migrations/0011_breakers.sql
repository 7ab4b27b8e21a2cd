-- The breakers of tasks: what is said of each, as JSON; whether it is open; and its probes, which claims write.
create table hawser.breaker (
    task text primary key,
    about text not null,
    open boolean not null,
    probe_at bigint, -- null: no probe is taken
    probe_every bigint,
    probe_id uuid,
    probe_lease bigint
);
