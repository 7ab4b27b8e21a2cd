-- Lanes: one per queue, task and priority. Their numbers stand in the rows, so rows stay narrow; lanes are never removed. A database
-- may yet be set back to where one was not made: by a backup, or by a crash without syncing. A number that processes remember
-- from before must then name no other lane, so it is a random number.
create table hawser.lane (
    id integer primary key default 1 + (random() * 2147483646)::integer,
    queue text not null,
    task text not null,
    priority smallint not null,
    unique (queue, task, priority)
);

-- One row whose number rises with every new lane, pause and limit: who knows the number knows them all. It follows the clock, so that
-- a database that was set back does not come to the same number with other lanes.
create table hawser.control (
    one boolean primary key default true check (one),
    version bigint not null
) with (fillfactor = 10);
insert into hawser.control (version) values (1);

-- The live jobs: waiting or running. A claim and an extension change no indexed column, so they touch no index as long as a page has
-- room for them: a claimed row is a third larger than a waiting one, and the rows of a page are claimed together.
create table hawser.job (
    seq bigint generated always as identity,
    run_at bigint not null,
    enqueued_at bigint not null,
    lease bigint not null default 0,
    settled bigint, -- the last lease that its own holder settled
    lease_until bigint,
    leased_for bigint,
    started_at bigint,
    granted bigint, -- the claim that gave it out
    timeout double precision not null,
    key_ttl double precision not null default 0,
    lane integer not null,
    attempt integer not null default 0,
    max_attempts integer not null,
    returned integer not null default 0,
    crashes integer not null default 0,
    kind smallint not null,
    running boolean not null default false,
    cancel_asked boolean not null default false,
    confirm_replay boolean not null default false,
    id uuid not null,
    body bytea not null,
    worker text,
    key text,
    tags text,
    parent_id uuid,
    schedule text,
    tick bigint,
    reason text,
    progress bytea,
    constraint job_id primary key (id)
) with (fillfactor = 40, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 1000000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000, autovacuum_vacuum_cost_delay = 0);

-- A claim reads from here, one lane and kind at a time, from its frontier on. Running jobs stay in it.
create index job_order on hawser.job (lane, kind, run_at, seq);
-- The runs that were asked to end: nearly always an empty table.
create index job_asked on hawser.job (id) where cancel_asked;

create index job_key on hawser.job (key, id) where key is not null;
create index job_parent on hawser.job (parent_id, id) where parent_id is not null;
create index job_schedule on hawser.job (schedule, id) where schedule is not null;
create index job_tick on hawser.job (schedule, tick) where tick is not null;

create sequence hawser.grants;

-- What a claim gave out. A reclaim looks at the jobs of a claim when the first of its leases may have run out.
create table hawser.granted (
    id bigint primary key,
    look_at bigint not null,
    jobs uuid[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table hawser.granted alter column jobs set storage external; -- ids do not compress
create index granted_look on hawser.granted (look_at);

-- Jobs that were done, by the day of their end: a day is dropped whole.
create table hawser.done (
    day integer not null,
    finished_at bigint not null,
    run_at bigint not null,
    enqueued_at bigint not null,
    started_at bigint not null,
    lease bigint not null,
    timeout double precision not null,
    key_ttl double precision not null,
    lane integer not null,
    attempt integer not null,
    max_attempts integer not null,
    returned integer not null,
    crashes integer not null,
    cancel_asked boolean not null,
    confirm_replay boolean not null,
    id uuid not null,
    body bytea not null,
    worker text not null,
    key text,
    tags text,
    parent_id uuid,
    schedule text,
    tick bigint,
    result bytea,
    progress bytea,
    attempts text -- the attempts that failed before, as JSON
) partition by range (day);
create index done_id on hawser.done (id);
create index done_key on hawser.done (key, id) where key is not null;
create index done_parent on hawser.done (parent_id, id) where parent_id is not null;
create index done_schedule on hawser.done (schedule, id) where schedule is not null;
create index done_tick on hawser.done (schedule, tick) where tick is not null;

-- Jobs that are dead or were cancelled.
create table hawser.failed (
    seq bigint not null,
    id uuid primary key,
    state text not null,
    finished_at bigint not null,
    run_at bigint not null,
    enqueued_at bigint not null,
    started_at bigint,
    lease bigint not null,
    settled bigint,
    timeout double precision not null,
    key_ttl double precision not null,
    lane integer not null,
    attempt integer not null,
    max_attempts integer not null,
    returned integer not null,
    crashes integer not null,
    cancel_asked boolean not null,
    confirm_replay boolean not null,
    body bytea not null,
    worker text,
    key text,
    tags text,
    parent_id uuid,
    schedule text,
    tick bigint,
    reason text,
    progress bytea
);
create index failed_state on hawser.failed (state, id);
create index failed_end on hawser.failed (lane, state, finished_at);
create index failed_key on hawser.failed (key, id) where key is not null;
create index failed_parent on hawser.failed (parent_id, id) where parent_id is not null;
create index failed_schedule on hawser.failed (schedule, id) where schedule is not null;
create index failed_tick on hawser.failed (schedule, tick) where tick is not null;

-- The attempts that did not end well, of jobs that are live, dead or cancelled. A run that is under way stands in its job's row.
create table hawser.attempt (
    job uuid not null,
    lease bigint not null,
    number integer not null,
    worker text not null,
    started_at bigint not null,
    ended_at bigint not null,
    outcome text not null,
    error text,
    traceback text,
    primary key (job, lease)
);

-- Who holds which deduplication key. Without `until`, the hold ends with the job.
create table hawser.key (
    queue text not null,
    key text not null,
    job_id uuid not null,
    lane integer not null,
    until bigint,
    primary key (queue, key)
);
create index key_job on hawser.key (job_id);
create index key_until on hawser.key (until) where until is not null;

-- What was counted, per minute; a name that begins with @ is a place, counted for all times under minute 0.
create table hawser.tally (
    minute bigint not null,
    lane integer not null,
    name text not null,
    count bigint not null,
    primary key (minute, lane, name)
) with (fillfactor = 50);

-- What has been counted since: written by appending, added to the tally now and then, so no two writers wait for one row.
create table hawser.counted (
    minute bigint not null,
    lane integer not null,
    name text not null,
    count bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

create table hawser.queue (
    queue text primary key,
    max_depth bigint,
    max_attempts integer,
    policy text -- how its jobs are run, as JSON
);

create table hawser.pause (
    kind text not null,
    name text not null,
    since bigint not null,
    until bigint,
    reason text,
    by text not null,
    primary key (kind, name)
);

create table hawser.audit (
    seq bigint generated always as identity primary key,
    at bigint not null,
    by text not null,
    action text not null,
    target text not null,
    count bigint not null,
    reason text
);
create index audit_at on hawser.audit (at);

-- The workers, by their last sign of life; what they say of themselves is JSON.
create table hawser.worker (
    worker text primary key,
    since bigint not null,
    seen_at bigint not null,
    about text not null
);

-- The schedules; everything about one is JSON, but for what is searched for.
create table hawser.schedule (
    name text primary key,
    revision text not null,
    due_at bigint,
    about text not null
) with (fillfactor = 50);

-- A scheduler reads from here.
create index schedule_due on hawser.schedule (due_at, name) where due_at is not null;

-- What living workers declare, in order of age.
create table hawser.declaration (
    seq bigint generated always as identity primary key,
    id text not null unique,
    names text not null,
    seen_at bigint not null
);

-- API keys, by their hashes; what else is known of one is JSON.
create table hawser.api_key (
    id text primary key,
    about text not null,
    created_at bigint not null,
    expires_at bigint,
    revoked_at bigint,
    used_at bigint
);

-- The store's time in microseconds; a test may give its own.
create function hawser.now(given bigint) returns bigint language sql volatile parallel safe as $$
    select coalesce(given, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

-- How many jobs of a queue wait.
create function hawser.waiting(wanted text) returns bigint language sql stable as $$
    select coalesce(sum(c.count), 0)::bigint
    from (select lane, name, count from hawser.tally where minute = 0 union all select lane, name, count from hawser.counted where minute = 0) as c
    join hawser.lane as l on l.id = c.lane
    where l.queue = wanted and c.name in ('@fresh', '@timed', '@retrying')
$$;

-- Which of these jobs are there already, by their places.
create function hawser.there(ids uuid[], first_day integer) returns jsonb language plpgsql as $$
begin
    return coalesce((
        select jsonb_object_agg(w.n, w.id) from unnest(ids) with ordinality as w(id, n)
        where exists (select 1 from hawser.job as j where j.id = w.id)
            or exists (select 1 from hawser.failed as f where f.id = w.id)
            or exists (select 1 from hawser.done as d where d.id = w.id and d.day >= first_day)
    ), '{}');
end
$$;

-- The keys that these jobs want: those whose place does not stand in `stands`, nor their id in `over`.
create function hawser.wanted(
    at bigint, ids uuid[], lanes integer[], keys text[], ttls double precision[], stands jsonb, over jsonb
) returns table (place bigint, id uuid, lane integer, queue text, key text, until bigint) language sql stable as $$
    select w.n, w.id, w.lane, l.queue, w.key,
        case when w.ttl is null or w.ttl in (0, 'infinity') then null else at + (w.ttl * 1000000)::bigint end
    from unnest(ids, lanes, keys, ttls) with ordinality as w(id, lane, key, ttl, n) join hawser.lane as l on l.id = w.lane
    where w.key is not null and not stands ? w.n::text and not over ? w.id::text
$$;

-- Takes the keys of jobs that do not stand already, and answers with the others: their place, and the job that holds their key. Who is
-- about to take one is waited for. Who holds one is not locked: the caller's transaction may go on for long, and the holder must be
-- able to end meanwhile.
create function hawser.hold(at bigint, ids uuid[], lanes integer[], keys text[], ttls double precision[], stands jsonb)
returns jsonb language plpgsql as $$
declare
    others jsonb := '{}';
    over jsonb := '{}'; -- the ids that are over with
    some_ jsonb;
    places jsonb;
begin
    for tries in 1 .. 10 loop
        with held as (
            insert into hawser.key as k (queue, key, job_id, lane, until)
            select w.queue, w.key, w.id, w.lane, w.until from hawser.wanted(at, ids, lanes, keys, ttls, stands, over) as w
            order by w.queue, w.key on conflict do nothing returning k.job_id, k.lane
        ), counted as (
            insert into hawser.counted (minute, lane, name, count)
            select 0, h.lane, '@keys', count(*) from held as h group by h.lane
        )
        select jsonb_object_agg(h.job_id, null) into some_ from held as h;
        over := over || coalesce(some_, '{}');
        exit when not exists (select from hawser.wanted(at, ids, lanes, keys, ttls, stands, over));

        select jsonb_object_agg(w.id, null), jsonb_object_agg(w.place, k.job_id) into some_, places
        from hawser.wanted(at, ids, lanes, keys, ttls, stands, over) as w
        cross join lateral (
            select h.job_id, h.until from hawser.key as h where h.queue = w.queue and h.key = w.key limit 1
        ) as k where k.until is null or k.until > at;
        over := over || coalesce(some_, '{}');
        others := others || coalesce(places, '{}');
        exit when not exists (select from hawser.wanted(at, ids, lanes, keys, ttls, stands, over));

        -- Those whose time is up are free for the first who comes; locked in one order, so that there is no deadlock.
        with free as materialized (
            select w.*, k.job_id as before
            from (select * from hawser.wanted(at, ids, lanes, keys, ttls, stands, over) order by queue, key offset 0) as w
            cross join lateral (
                select h.job_id from hawser.key as h where h.queue = w.queue and h.key = w.key and h.until <= at for update
            ) as k
        ), held as (
            update hawser.key as k set job_id = f.id, lane = f.lane, until = f.until from free as f
            where k.job_id = any (array[f.before]) and k.until <= at returning k.job_id
        )
        select jsonb_object_agg(h.job_id, null) into some_ from held as h;
        over := over || coalesce(some_, '{}');
        exit when not exists (select from hawser.wanted(at, ids, lanes, keys, ttls, stands, over));
        if tries = 10 then
            raise exception 'another transaction takes and leaves the same keys' using errcode = '40001';
        end if;
    end loop;
    return others;
end
$$;

-- Adds jobs that are all new, but for those whose place `stands`, and gives their ids; and whether one has a lane that is not there.
create function hawser.add(
    at bigint, ids uuid[], lanes integer[], bodies bytea[], run_ats bigint[], delays bigint[], max_attempts_ integer[],
    timeouts double precision[], keys text[], key_ttls double precision[], tags_ text[], parents uuid[], confirms boolean[],
    schedules text[], ticks bigint[], late boolean, stands jsonb, out added uuid[], out astray boolean
) language plpgsql as $$
declare
    all_new boolean := stands = '{}';
begin
    with new as (
        insert into hawser.job as j (id, lane, body, run_at, enqueued_at, max_attempts, timeout, key, key_ttl, tags, parent_id,
            confirm_replay, schedule, tick, kind)
        select w.id, w.lane, w.body, case when w.schedule is null then d.run_at else greatest(d.run_at, at) end, at,
            coalesce(w.attempts, 5), coalesce(w.timeout, 300), w.key, coalesce(w.ttl, 0), w.tags, w.parent_id,
            coalesce(w.confirm_replay, false), w.schedule, w.tick,
            case when d.run_at > at or w.schedule is not null then 2 when w.run_at is not null or late then 1 else 0 end
        from unnest(ids, lanes, bodies, run_ats, delays, max_attempts_, timeouts, keys, key_ttls, tags_, parents, confirms, schedules,
            ticks) with ordinality as w(id, lane, body, run_at, delay, attempts, timeout, key, ttl, tags, parent_id, confirm_replay,
                schedule, tick, n)
        cross join lateral (select coalesce(w.run_at, at + coalesce(w.delay, 0)) as run_at) as d
        where all_new or not stands ? w.n::text
        order by w.n
        returning j.id, j.lane, j.kind
    ), summed as materialized (
        select new.lane, new.kind, count(*) from new group by new.lane, new.kind
    ), counted as (
        insert into hawser.counted (minute, lane, name, count)
        select case p.name when 'enqueued' then at / 60000000 else 0 end, c.lane, p.name, c.count
        from summed as c cross join lateral (values (case c.kind when 2 then '@timed' else '@fresh' end), ('enqueued')) as p(name)
    )
    select array_agg(new.id), exists (select from summed as c where not exists (select from hawser.lane as l where l.id = c.lane))
    into added, astray from new;
end
$$;

-- Adds jobs, all or none, and answers with those that were not added: their place in the call, and the job that stands for them.
-- `made` is the day on which the oldest id was made: a repeated job may have come to its end already, but not before that day.
-- No key may stand twice in one call. Arrays that are null stand for defaults throughout. A late call is one whose commit may
-- be long in coming: its jobs go where claims look for such. A job of a schedule had to wait for its time, and is not dated back.
-- `patience` is for how many milliseconds to wait for a lock, such as for a key that another transaction is about to take.
create function hawser.enqueue(
    given bigint, made integer, ids uuid[], lanes integer[], bodies bytea[], run_ats bigint[], delays bigint[], max_attempts_ integer[],
    timeouts double precision[], keys text[], key_ttls double precision[], tags_ text[], parents uuid[],
    confirms boolean[], schedules text[], ticks bigint[], unlimited boolean, late boolean, wake text[], patience integer
) returns table (place bigint, holder uuid) language plpgsql as $$
declare
    at bigint := hawser.now(given);
    first_day integer := least(made, at / 86400000000) - 1; -- a client's clock may be ahead
    limited boolean := not unlimited and exists (select 1 from hawser.queue as q where q.max_depth is not null);
    stands jsonb := '{}'; -- place → the job that stands for it
    added uuid[];
    oldest uuid;
    again uuid[];
    attempts_ integer[] := max_attempts_;
    over record;
    astray boolean;
    tries integer := 0;
begin
    if patience is not null then
        perform set_config('lock_timeout', patience::text, true);
    end if;
    if keys is not null then
        stands := hawser.there(ids, first_day);
        stands := stands || hawser.hold(at, ids, lanes, keys, key_ttls, stands);
    end if;

    if limited then
        -- Who adds to a queue with a limit waits for the others who do, unless that may be long: then the limit may be passed a little.
        if not late then
            perform pg_advisory_xact_lock(hashtext('hawser.depth'), hashtext(f.queue)) from (
                select distinct l.queue from unnest(lanes) as w(lane) join hawser.lane as l on l.id = w.lane
                join hawser.queue as q on q.queue = l.queue where q.max_depth is not null order by l.queue
            ) as f;
        end if;
        -- Looked for only now: the first call of a repeated one may have held that lock until a moment ago.
        stands := stands || hawser.there(ids, first_day);
        for over in
            select q.queue, q.max_depth, hawser.waiting(q.queue) as depth, count(*) as more
            from unnest(lanes) with ordinality as w(lane, n)
            join hawser.lane as l on l.id = w.lane join hawser.queue as q on q.queue = l.queue
            where q.max_depth is not null and not stands ? w.n::text
            group by q.queue, q.max_depth
        loop
            if over.depth + over.more > over.max_depth then
                raise exception 'queue full' using errcode = 'HW001',
                    detail = jsonb_build_object('queue', over.queue, 'depth', over.depth, 'max_depth', over.max_depth)::text;
            end if;
        end loop;
    end if;

    if exists (select 1 from hawser.queue as q where q.max_attempts is not null) then
        select array_agg(coalesce(w.attempts, q.max_attempts) order by w.n) into attempts_
        from unnest(lanes, max_attempts_) with ordinality as w(lane, attempts, n)
        left join hawser.lane as l on l.id = w.lane left join hawser.queue as q on q.queue = l.queue;
    end if;

    -- Most calls bring jobs that are all new. To ask for each whether it is, as `on conflict` does, costs a third more than to be told
    -- that one was not, and to begin again without it. Not so in a caller's own transaction, which may call us many times: being told
    -- takes a subtransaction, and of those a transaction must not have too many.
    if late then
        stands := stands || hawser.there(ids, first_day);
        select * into added, astray from hawser.add(at, ids, lanes, bodies, run_ats, delays, attempts_, timeouts, keys, key_ttls, tags_,
            parents, confirms, schedules, ticks, late, stands);
    else
        loop
            tries := tries + 1;
            begin
                select * into added, astray from hawser.add(at, ids, lanes, bodies, run_ats, delays, attempts_, timeouts, keys, key_ttls,
                    tags_, parents, confirms, schedules, ticks, late, stands);
                exit;
            exception when unique_violation then
                if tries = 5 then
                    raise exception 'another transaction adds the same jobs' using errcode = '40001';
                end if;
                stands := stands || hawser.there(ids, first_day);
            end;
        end loop;
    end if;
    if astray and current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'this transaction began before a task of these jobs was known here: repeat it' using errcode = '40001';
    end if;
    if astray then
        raise exception 'no such lane' using errcode = 'HW002';
    end if;

    -- Read again after the insert: a job that came to its end a moment ago is not in `job` any more. New ids are higher than
    -- those of all jobs that have come to their end: one look tells.
    select i into oldest from unnest(added) as i order by i limit 1;
    if exists (select from hawser.done as d where d.day >= first_day and d.id >= oldest)
        or exists (select from hawser.failed as f where f.id >= oldest) then
        select array_agg(e.id) into again from (
            select d.id from hawser.done as d where d.day >= first_day and d.id = any(added)
            union all
            select f.id from hawser.failed as f where f.id = any(added)
        ) as e;
    end if;
    if again is not null then
        with gone as (delete from hawser.job as j where j.id = any(again) returning j.lane, j.kind, j.key, j.id),
        freed as (
            delete from hawser.key as k using gone as g
            where k.job_id = any (array[g.id]) and k.key = g.key and k.until is null returning k.lane
        )
        insert into hawser.counted (minute, lane, name, count)
        select case p.name when 'enqueued' then at / 60000000 else 0 end, g.lane, p.name, -1
        from gone as g cross join lateral (values (case g.kind when 2 then '@timed' else '@fresh' end), ('enqueued')) as p(name)
        union all select 0, freed.lane, '@keys', -1 from freed;
    end if;
    if coalesce(cardinality(added), 0) < cardinality(ids) or again is not null then
        return query
            select w.n, coalesce((stands ->> w.n::text)::uuid, w.id) from unnest(ids) with ordinality as w(id, n)
            where stands ? w.n::text or w.id <> all (coalesce(added, '{}')) or w.id = any (again);
    end if;
    if stands <> '{}' then
        insert into hawser.counted (minute, lane, name, count)
        select at / 60000000, w.lane, 'deduplicated', count(*) from unnest(ids, lanes) with ordinality as w(id, lane, n)
        where (stands ->> w.n::text)::uuid <> w.id group by w.lane;
    end if;
    if wake is not null then
        perform pg_notify('hawser.wake', w) from unnest(wake) as w;
    end if;
end
$$;

-- Puts schedules forward, each with its jobs or not at all, and answers for each place: done, skipped, repeated or stale. No
-- schedule may stand twice in one call. `of_` says to which place a job belongs. The rows are locked in one order, so that
-- there is no deadlock.
create function hawser.fire(
    given bigint, names text[], expects text[], revisions text[], dues bigint[], abouts text[],
    lives uuid[], other_dues bigint[], other_abouts text[],
    of_ integer[], made integer, ids uuid[], lanes integer[], bodies bytea[], run_ats bigint[], max_attempts_ integer[],
    timeouts double precision[], tags_ text[], confirms boolean[], ticks bigint[], wake text[]
) returns text[] language plpgsql as $$
declare
    at bigint := hawser.now(given);
    first_day integer := least((select min(t) from unnest(ticks) as t), at) / 86400000000 - 1;
    said text[];
    created text[];
    new record;
begin
    perform from hawser.schedule as s where s.name = any(names) order by s.name for update;
    select array_agg(
        case when s.revision = w.revision then 'repeated' when s.revision is distinct from w.expect then 'stale'
            when w.other is not null and exists (select from hawser.job as j where j.id = w.live) then 'skipped' else 'done' end
        order by w.n
    ) into said
    from unnest(names, expects, revisions, lives, other_abouts) with ordinality as w(name, expect, revision, live, other, n)
    left join hawser.schedule as s on s.name = w.name;

    update hawser.schedule as s set revision = w.revision,
        due_at = case said[w.n] when 'done' then w.due else w.other_due end,
        about = case said[w.n] when 'done' then w.about else w.other end
    from unnest(names, expects, revisions, dues, abouts, other_dues, other_abouts)
        with ordinality as w(name, expect, revision, due, about, other_due, other, n)
    where s.name = w.name and w.expect is not null and said[w.n] in ('done', 'skipped');

    -- Another process may have created the same a moment ago: then this one comes too late.
    with made_ as (
        insert into hawser.schedule as s (name, revision, due_at, about)
        select w.name, w.revision, w.due, w.about
        from unnest(names, expects, revisions, dues, abouts) with ordinality as w(name, expect, revision, due, about, n)
        where w.expect is null and said[w.n] = 'done' order by w.name
        on conflict (name) do nothing returning s.name
    )
    select coalesce(array_agg(m.name), '{}') into created from made_ as m;
    select array_agg(case when w.expect is null and said[w.n] = 'done' and w.name <> all (created) then 'stale' else said[w.n] end order by w.n)
    into said from unnest(names, expects) with ordinality as w(name, expect, n);

    select array_agg(w.id order by w.n) as ids, array_agg(w.lane order by w.n) as lanes, array_agg(w.body order by w.n) as bodies,
        array_agg(w.run_at order by w.n) as run_ats, array_agg(w.attempts order by w.n) as attempts,
        array_agg(w.timeout order by w.n) as timeouts, array_agg(w.tags order by w.n) as tags,
        array_agg(w.confirm order by w.n) as confirms, array_agg(names[w.place] order by w.n) as schedules,
        array_agg(w.tick order by w.n) as ticks
    into new
    from unnest(of_, ids, lanes, bodies, run_ats, max_attempts_, timeouts, tags_, confirms, ticks)
        with ordinality as w(place, id, lane, body, run_at, attempts, timeout, tags, confirm, tick, n)
    where said[w.place] = 'done' and (w.tick is null or not (
        exists (select from hawser.job as j where j.tick is not null and j.schedule = names[w.place] and j.tick = w.tick)
        or exists (select from hawser.failed as f where f.tick is not null and f.schedule = names[w.place] and f.tick = w.tick)
        or exists (select from hawser.done as d
            where d.tick is not null and d.schedule = names[w.place] and d.tick = w.tick and d.day >= first_day)));
    if new.ids is not null then
        perform hawser.enqueue(given, made, new.ids, new.lanes, new.bodies, new.run_ats, null, new.attempts, new.timeouts, null, null,
            new.tags, null, new.confirms, new.schedules, new.ticks, true, false, wake, null);
    end if;
    return said;
end
$$;
