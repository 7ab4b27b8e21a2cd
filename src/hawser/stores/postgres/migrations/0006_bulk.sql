-- Bulk operations: what they do (a plan as JSON), how far they are, and which process runs them.
create table hawser.bulk (
    id uuid primary key,
    plan text not null,
    state text not null,
    owner text not null,
    turn integer not null,
    cursor text,
    done integer not null default 0,
    skipped integer not null default 0,
    error text,
    started_at bigint not null,
    seen_at bigint not null,
    ended_at bigint
);
