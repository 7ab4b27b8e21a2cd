-- Every job, live and finished. Finished rows leave the partial indexes that claims and reclaims read.
create table hawser_job (
    seq integer primary key,
    id text not null unique,
    task text not null,
    queue text not null,
    body blob not null,
    priority integer not null,
    state text not null,
    lane integer not null,
    run_at integer not null,
    enqueued_at integer not null,
    attempt integer not null default 0,
    max_attempts integer not null,
    timeout real not null,
    lease integer not null default 0,
    lease_until integer,
    leased_for integer,
    settled integer, -- the last lease that its own holder settled
    started_at integer,
    finished_at integer,
    worker text,
    key text,
    key_ttl real not null default 0,
    tags text,
    parent_id text,
    confirm_replay integer not null default 0,
    schedule text,
    tick integer,
    cancel_asked integer not null default 0,
    returned integer not null default 0,
    crashes integer not null default 0,
    reason text,
    result blob,
    progress blob
);

-- A claim reads from here, one lane at a time.
create index hawser_job_ready on hawser_job (queue, task, priority, lane, run_at, seq) where state = 'ready';

-- A reclaim reads from here.
create index hawser_job_running on hawser_job (lease_until, seq) where state = 'running';

-- The runs that were asked to end: nearly always an empty table.
create index hawser_job_asked on hawser_job (worker) where state = 'running' and cancel_asked = 1;

-- Pruning reads from here; also all jobs of a task that ended one way.
create index hawser_job_finished on hawser_job (task, state, finished_at) where finished_at is not null;

-- The dead and cancelled ones, newest first: few among many that were done.
create index hawser_job_failed on hawser_job (state, id) where state in ('dead', 'cancelled');

create index hawser_job_key on hawser_job (key, id) where key is not null;
create index hawser_job_parent on hawser_job (parent_id, id) where parent_id is not null;

-- The jobs of a schedule, newest first; and whether a tick has its job.
create index hawser_job_schedule on hawser_job (schedule, id) where schedule is not null;
create index hawser_job_tick on hawser_job (schedule, tick) where tick is not null;

-- The attempts that did not end well. A run that is under way, or was done, stands in its job's row.
create table hawser_attempt (
    job integer not null,
    lease integer not null,
    number integer not null,
    worker text not null,
    started_at integer not null,
    ended_at integer not null,
    outcome text not null,
    error text,
    traceback text,
    primary key (job, lease)
);

-- Who holds which deduplication key. Without `until`, the hold ends with the job.
create table hawser_key (
    queue text not null,
    key text not null,
    job_id text not null,
    until integer,
    primary key (queue, key)
) without rowid;
create index hawser_key_until on hawser_key (until) where until is not null;

-- How many jobs stand where; also the directory of the lanes that a claim looks into.
create table hawser_depth (
    queue text not null,
    task text not null,
    priority integer not null,
    fresh integer not null default 0,
    timed integer not null default 0,
    retrying integer not null default 0,
    running integer not null default 0,
    done integer not null default 0,
    dead integer not null default 0,
    cancelled integer not null default 0,
    primary key (queue, task, priority)
) without rowid;

-- What happened, per minute.
create table hawser_tally (
    minute integer not null,
    queue text not null,
    task text not null,
    event text not null,
    count integer not null,
    primary key (minute, queue, task, event)
) without rowid;

create table hawser_queue (
    queue text primary key,
    max_depth integer,
    max_attempts integer,
    policy blob, -- how its jobs are run, as JSON
    keys integer not null default 0
) without rowid;

create table hawser_pause (
    kind text not null,
    name text not null,
    since integer not null,
    until integer,
    reason text,
    by text not null,
    primary key (kind, name)
) without rowid;

create table hawser_audit (
    seq integer primary key,
    at integer not null,
    by text not null,
    action text not null,
    target text not null,
    count integer not null,
    reason text
);

-- The workers, by their last sign of life; what they say of themselves is JSON.
create table hawser_worker (
    worker text primary key,
    since integer not null,
    seen_at integer not null,
    about blob not null
) without rowid;

-- The schedules; everything about one is JSON, but for what is searched for.
create table hawser_schedule (
    name text primary key,
    revision text not null,
    due_at integer,
    about blob not null
) without rowid;

-- A scheduler reads from here.
create index hawser_schedule_due on hawser_schedule (due_at, name) where due_at is not null;

-- What living workers declare, in order of age.
create table hawser_declaration (
    seq integer primary key,
    id text not null unique,
    names text not null,
    seen_at integer not null
);

-- API keys, by their hashes; what else is known of one is JSON.
create table hawser_api_key (
    id text primary key,
    about blob not null,
    created_at integer not null,
    expires_at integer,
    revoked_at integer,
    used_at integer
) without rowid;
