-- The requests that callers may repeat, by caller and the key that the caller gave: a hash of the body, and the jobs that were answered.
create table hawser_request (
    caller text not null,
    key text not null,
    digest blob not null,
    jobs text not null,
    until integer not null,
    primary key (caller, key)
) without rowid;

-- Pruning reads from here.
create index hawser_request_until on hawser_request (until);
