-- revision: 16
-- The functions of the database. `migrate` makes or replaces them when it finds others: a changed function is no migration. Raise the
-- revision with every change: a database that a newer Hawser has changed keeps the newer functions.
-- Workers of the release before call these functions meanwhile, by name and types of arguments. A function with other arguments is
-- another function to PostgreSQL, and the old one stays. `create or replace` cannot rename an argument.
-- A function whose answer has other columns gets another name: workers of the release before read theirs by place, and the old one stays, too.
-- `[[given]]` and the like are the columns of a job, see `stores/columns.py`.

-- The store's time in microseconds; a test may give its own.
create or replace function hawser.now(given bigint) returns bigint language sql volatile parallel safe as $$
    select coalesce(given, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

-- How many jobs of a queue wait.
create or replace function hawser.waiting(wanted text) returns bigint language sql stable as $$
    select coalesce(sum(c.count), 0)::bigint
    from (select lane, name, count from hawser.tally where minute = 0 union all select lane, name, count from hawser.counted where minute = 0) as c
    join hawser.lane as l on l.id = c.lane
    where l.queue = wanted and c.name in ('@fresh', '@timed', '@retrying')
$$;

-- Which of these jobs are there already, by their places.
create or replace function hawser.there(ids uuid[], first_day integer) returns jsonb language plpgsql as $$
begin
    return coalesce((
        select jsonb_object_agg(w.n, w.id) from unnest(ids) with ordinality as w(id, n)
        where exists (select 1 from hawser.job as j where j.id = w.id)
            or exists (select 1 from hawser.failed as f where f.id = w.id)
            or exists (select 1 from hawser.done as d where d.id = w.id and d.day >= first_day)
    ), '{}');
end
$$;

-- Jobs that are there, by their ids.
create or replace function hawser.standing(wanted uuid[], first_day integer) returns table (id uuid, lane integer, body bytea) language sql stable as $$
    select w.id, e.lane, e.body from unnest(wanted) as w(id) cross join lateral (
        select j.lane, j.body from hawser.job as j where j.id = w.id
        union all select f.lane, f.body from hawser.failed as f where f.id = w.id
        union all select d.lane, d.body from hawser.done as d where d.id = w.id and d.day >= first_day
    ) as e
$$;

-- Whether a job held its key until its start, and has started: it runs, or waits for another attempt.
create or replace function hawser.has_let_go(holder uuid) returns boolean language sql stable as $$
    select exists (select from hawser.job as j where j.id = holder and j.key_ttl = '-infinity' and j.attempt > 0)
$$;

-- The keys that these jobs want: those whose place does not stand in `stands`, nor their id in `over`.
create or replace function hawser.wanted(
    at bigint, ids uuid[], lanes integer[], keys text[], ttls double precision[], stands jsonb, over jsonb
) returns table (place bigint, id uuid, lane integer, queue text, task text, key text, until bigint) language sql stable as $$
    select w.n, w.id, w.lane, l.queue, l.task, w.key,
        case when w.ttl is null or w.ttl in (0, 'infinity', '-infinity') then null else at + (w.ttl * 1000000)::bigint end
    from unnest(ids, lanes, keys, ttls) with ordinality as w(id, lane, key, ttl, n) join hawser.lane as l on l.id = w.lane
    where w.key is not null and not stands ? w.n::text and not over ? w.id::text
$$;

-- Takes the keys of jobs that do not stand already, and answers with the others: their place, and the job that holds their key. Who is
-- about to take one is waited for. Who holds one is not locked: the caller's transaction may go on for long, and the holder must be
-- able to end meanwhile.
create or replace function hawser.hold(at bigint, ids uuid[], lanes integer[], keys text[], ttls double precision[], stands jsonb)
returns jsonb language plpgsql as $$
declare
    others jsonb := '{}';
    over jsonb := '{}'; -- the ids that are over with
    some_ jsonb;
    places jsonb;
begin
    for tries in 1 .. 10 loop
        with held as (
            insert into hawser.held_key as k (queue, task, key, job_id, lane, until)
            select w.queue, w.task, w.key, w.id, w.lane, w.until from hawser.wanted(at, ids, lanes, keys, ttls, stands, over) as w
            order by w.queue, w.task, w.key on conflict do nothing returning k.job_id, k.lane
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
            select h.job_id, h.lane, h.until from hawser.held_key as h where h.queue = w.queue and h.task = w.task and h.key = w.key limit 1
        ) as k where k.until > at or k.until is null and not hawser.has_let_go(k.job_id)
            or k.until is not null and exists (select from hawser.job as j where j.id = k.job_id and j.lane = k.lane and j.key = w.key);
        over := over || coalesce(some_, '{}');
        others := others || coalesce(places, '{}');
        exit when not exists (select from hawser.wanted(at, ids, lanes, keys, ttls, stands, over));

        -- Those whose time is up, and whose job is over, are free for the first caller; locked in one order, so that there is no
        -- deadlock. A job that is live again has written its hold anew: the time is looked at once more behind the lock.
        with free as materialized (
            select w.*, k.job_id as before
            from (select * from hawser.wanted(at, ids, lanes, keys, ttls, stands, over) order by queue, task, key offset 0) as w
            cross join lateral (
                select h.job_id from hawser.held_key as h
                where h.queue = w.queue and h.task = w.task and h.key = w.key and (h.until is null and hawser.has_let_go(h.job_id)
                    or h.until <= at and not exists (select from hawser.job as j where j.id = h.job_id and j.lane = h.lane and j.key = h.key))
                for update of h
            ) as k
        ), held as (
            update hawser.held_key as k set job_id = f.id, lane = f.lane, until = f.until, outlived = false from free as f
            where k.job_id = any (array[f.before]) and (k.until is null or k.until <= at) and k.key = f.key returning k.job_id
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
create or replace function hawser.add(
    at bigint, ids uuid[], lanes integer[], run_ats bigint[], delays bigint[], max_attempts_ integer[], late boolean,
    default_attempts integer, default_timeout double precision, stands jsonb, [[given parameters]],
    out added uuid[], out astray boolean
) language plpgsql as $$
declare
    all_new boolean := stands = '{}';
begin
    with new as (
        insert into hawser.job as j (id, lane, run_at, enqueued_at, max_attempts, kind, [[given]])
        select w.id, w.lane, case when w.schedule is null then d.run_at else greatest(d.run_at, at) end, at,
            coalesce(w.attempts, default_attempts),
            case when d.run_at > at or w.schedule is not null then 2 when w.run_at is not null or late then 1 else 0 end
                + case when w.group_name is null then 0 else 4 end,
            [[given values of w]]
        from unnest(ids, lanes, run_ats, delays, max_attempts_, [[given arrays]])
            with ordinality as w(id, lane, run_at, delay, attempts, [[given]], n)
        cross join lateral (select coalesce(w.run_at, at + coalesce(w.delay, 0)) as run_at) as d
        where all_new or not stands ? w.n::text
        order by w.n
        returning j.id, j.lane, j.kind
    ), summed as materialized (
        select new.lane, new.kind, count(*) from new group by new.lane, new.kind
    ), counted as (
        insert into hawser.counted (minute, lane, name, count)
        select case p.name when 'enqueued' then at / 60000000 else 0 end, c.lane, p.name, c.count
        from summed as c cross join lateral (values (case c.kind % 4 when 2 then '@timed' else '@fresh' end), ('enqueued')) as p(name)
    )
    select array_agg(new.id), exists (select from summed as c where not exists (select from hawser.lane as l where l.id = c.lane))
    into added, astray from new;
    if new_group_name is not null then
        insert into hawser.arrived (lane, group_name, due_at)
        select j.lane, j.group_name, min(j.run_at) from hawser.job as j where j.id = any(added) and j.group_name is not null
        group by j.lane, j.group_name order by min(j.seq);
    end if;
end
$$;

-- Adds jobs, all or none, and answers with those that were not added: their place in the call, and the job that stands for them.
-- `made` is the day on which the oldest id was made: a repeated job may have come to its end already, but not before that day.
-- No key may stand twice in one call. Arrays that are null stand for defaults throughout. A late call is one whose commit may
-- be long in coming: its jobs go where claims look for such. A job of a schedule had to wait for its time, and is not dated back.
-- `patience` is for how many milliseconds to wait for a lock, such as for a key that another transaction is about to take.
create or replace function hawser.enqueue(
    given bigint, made integer, ids uuid[], lanes integer[], run_ats bigint[], delays bigint[], max_attempts_ integer[], unlimited boolean,
    late boolean, wake text[], patience integer, default_attempts integer, default_timeout double precision, [[given parameters]]
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
    if new_key is not null then
        stands := hawser.there(ids, first_day);
        stands := stands || hawser.hold(at, ids, lanes, new_key, new_key_ttl, stands);
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
        select * into added, astray from hawser.add(at, ids, lanes, run_ats, delays, attempts_, late, default_attempts,
            default_timeout, stands, [[given arrays]]);
    else
        loop
            tries := tries + 1;
            begin
                select * into added, astray from hawser.add(at, ids, lanes, run_ats, delays, attempts_, late, default_attempts,
                    default_timeout, stands, [[given arrays]]);
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
        from gone as g cross join lateral (values (case g.kind % 4 when 2 then '@timed' else '@fresh' end), ('enqueued')) as p(name)
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

-- As `enqueue`, and refuses ids that belong to jobs of another task, queue or payload.
create or replace function hawser.enqueue_checked(
    given bigint, made integer, ids uuid[], lanes integer[], run_ats bigint[], delays bigint[], max_attempts_ integer[], unlimited boolean,
    late boolean, wake text[], patience integer, default_attempts integer, default_timeout double precision, [[given parameters]]
) returns table (place bigint, holder uuid) language plpgsql as $$
declare
    others jsonb;
    clashes jsonb;
begin
    select jsonb_object_agg(e.place, e.holder) into others from hawser.enqueue(given, made, ids, lanes, run_ats, delays,
        max_attempts_, unlimited, late, wake, patience, default_attempts, default_timeout, [[given arrays]]) as e;
    if others is null then
        return;
    end if;
    select jsonb_agg(w.id) into clashes from unnest(ids, lanes, new_body) with ordinality as w(id, lane, body, n)
    join hawser.lane as l on l.id = w.lane
    cross join lateral (
        select s.lane, s.body from hawser.standing(array[w.id], (least(made, hawser.now(given) / 86400000000) - 1)::integer) as s limit 1
    ) as e
    join hawser.lane as m on m.id = e.lane
    where (others ->> w.n::text)::uuid = w.id and (e.body <> w.body or (m.queue, m.task) <> (l.queue, l.task));
    if clashes is not null then
        raise exception 'these ids belong to other jobs' using errcode = 'HW003', detail = clashes::text;
    end if;
    return query select o.key::bigint, o.value::uuid from jsonb_each_text(others) as o;
end
$$;

-- Puts schedules forward, each with its jobs or not at all, and answers for each place: done, skipped, repeated or stale. No
-- schedule may stand twice in one call. `of_` says to which place a job belongs. The rows are locked in one order, so that
-- there is no deadlock.
create or replace function hawser.fire(
    given bigint, names text[], expects text[], revisions text[], dues bigint[], abouts text[],
    lives uuid[], other_dues bigint[], other_abouts text[],
    of_ integer[], made integer, ids uuid[], lanes integer[], run_ats bigint[], max_attempts_ integer[], wake text[],
    default_attempts integer, default_timeout double precision, [[given parameters]]
) returns text[] language plpgsql as $$
declare
    at bigint := hawser.now(given);
    first_day integer := least((select min(t) from unnest(new_tick) as t), at) / 86400000000 - 1;
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

    select array_agg(w.id order by w.n) as ids, array_agg(w.lane order by w.n) as lanes, array_agg(w.run_at order by w.n) as run_ats,
        array_agg(w.attempts order by w.n) as attempts, [[given gathered of w]]
    into new
    from unnest(of_, ids, lanes, run_ats, max_attempts_, [[given arrays]])
        with ordinality as w(place, id, lane, run_at, attempts, [[given]], n)
    where said[w.place] = 'done' and (w.tick is null or not (
        exists (select from hawser.job as j where j.tick is not null and j.schedule = names[w.place] and j.tick = w.tick)
        or exists (select from hawser.failed as f where f.tick is not null and f.schedule = names[w.place] and f.tick = w.tick)
        or exists (select from hawser.done as d
            where d.tick is not null and d.schedule = names[w.place] and d.tick = w.tick and d.day >= first_day)));
    if new.ids is not null then
        perform hawser.enqueue(given, made, new.ids, new.lanes, new.run_ats, null::bigint[], new.attempts, true, false, wake,
            null::integer, default_attempts, default_timeout, [[given of new]]);
    end if;
    return said;
end
$$;

-- Counts dead jobs by lane and fingerprint, under minute -1 of the tally. A trigger, since workers of an older version do not know of it.
create or replace function hawser.count_groups() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into hawser.counted (minute, lane, name, count)
        select -1, n.lane, n.fingerprint, count(*) from new_rows as n
        where n.state = 'dead' and n.fingerprint is not null group by n.lane, n.fingerprint;
    elsif tg_op = 'DELETE' then
        insert into hawser.counted (minute, lane, name, count)
        select -1, o.lane, o.fingerprint, -count(*) from old_rows as o
        where o.state = 'dead' and o.fingerprint is not null group by o.lane, o.fingerprint;
    else
        insert into hawser.counted (minute, lane, name, count)
        select -1, c.lane, c.fingerprint, sum(c.sign) from (
            select o.lane, o.fingerprint, -1 as sign from old_rows as o where o.state = 'dead' and o.fingerprint is not null
            union all
            select n.lane, n.fingerprint, 1 from new_rows as n where n.state = 'dead' and n.fingerprint is not null
        ) as c group by c.lane, c.fingerprint having sum(c.sign) <> 0;
    end if;
    return null;
end
$$;

-- The starts of the last period by slot, as of now: what stands in the slots, the last of which is `last_slot`, moved on to `slot`. A clock
-- that went back by more than the window leaves none.
create or replace function hawser.moved(slots integer[], last_slot bigint, slot bigint) returns integer[] language sql immutable as $$
    select case
        when last_slot = slot then slots
        when last_slot > slot then array_fill(0, array[16])
        else (
            select array_agg(case when (slot - n) % 16 < slot - last_slot then 0 else slots[n + 1] end order by n)
            from generate_series(0, 15) as n)
    end
$$;

-- Claims jobs under limits. The meters of the limits are locked in the order of their numbers, so that no claimers wait in a circle; what
-- is decided then is read after that. The answer is that of `take`: its first row has no job, and says that nothing could be taken
-- when the meter that the claimer waited for has given way to its next epoch.
-- `meters` and `epochs`: the limits, in order, and from which epoch on to look. `first` and `second_`: of each source, the places of its
-- limits among them, or null.
create or replace function hawser.take_limited_jobs(
    given bigint, known_version bigint, lanes integer[], kinds smallint[], run_ats bigint[], seqs bigint[], places integer[], worker_ text,
    lease_us bigint, grace_us bigint, good_until bigint, leave_ uuid[], meters_ integer[], epochs bigint[], first integer[], second_ integer[],
    slack_us bigint, most_changes integer
) returns table (
    now bigint, version bigint, mixed boolean, seq bigint, id text, lane integer, attempt integer, max_attempts integer, lease bigint,
    run_at bigint, enqueued_at bigint, crashes integer, returned integer, [[claimed columns]]
) language plpgsql as $$
#variable_conflict use_column
declare
    now_ bigint;
    version_ bigint;
    clock bigint := hawser.now(null);
    rule hawser.limited;
    held hawser.meter[];
    one hawser.meter;
    gone integer;
    slot_ bigint;
    left_ integer[];
    started integer[];
    freed integer[];
    caps boolean[];
    rates boolean[];
    room integer;
    got integer;
    counted_by integer[];
begin
    for i in 1..cardinality(meters_) loop
        select m.* into one from hawser.meter as m where m.id = meters_[i] and m.epoch >= epochs[i] order by m.epoch desc limit 1 for update;
        if not found then
            return query select hawser.now(given), known_version, true, null::bigint, null::text, null::integer, null::integer, null::integer,
                null::bigint, null::bigint, null::bigint, null::integer, null::integer, [[claimed nulls]];
            return;
        end if;
        held[i] := one;
    end loop;
    now_ := hawser.now(given);
    version_ := (select c.version from hawser.control as c);
    return query select now_, version_, false, null::bigint, null::text, null::integer, null::integer, null::integer,
        null::bigint, null::bigint, null::bigint, null::integer, null::integer, [[claimed nulls]];
    if version_ <> known_version or now_ >= good_until then
        return;
    end if;
    for i in 1..cardinality(meters_) loop
        one := held[i];
        select l.* into rule from hawser.limited as l where l.id = meters_[i];
        with over as (delete from hawser.freed as f where f.meter = meters_[i] and f.at >= one.folded_at - slack_us returning f.runs)
        select coalesce(sum(o.runs), 0) into gone from over as o;
        one.running := one.running - gone;
        left_[i] := 2147483647;
        if rule.running is not null then
            left_[i] := rule.running - one.running;
        end if;
        if rule.starts is not null then
            slot_ := now_ / rule.width;
            if slot_ < one.slot and one.slot - slot_ < 16 then
                slot_ := one.slot;
            end if;
            one.slots := hawser.moved(one.slots, one.slot, slot_);
            one.slot := slot_;
            left_[i] := least(left_[i], rule.starts - (select sum(s) from unnest(one.slots) as s));
        end if;
        held[i] := one;
        started[i] := 0;
        freed[i] := gone;
        caps[i] := rule.running is not null;
        rates[i] := rule.starts is not null;
    end loop;
    for i in 1..cardinality(lanes) loop
        room := least(places[i], left_[first[i]], left_[second_[i]]);
        counted_by := array_remove(array[case when caps[first[i]] then meters_[first[i]] end, case when caps[second_[i]] then meters_[second_[i]] end], null);
        if room > 0 then
            return query with head as materialized (
                select j.ctid as tid from hawser.job as j
                where j.lane = lanes[i] and j.kind = kinds[i] and (j.run_at, j.seq) >= (run_ats[i], seqs[i]) and j.run_at <= now_ and not j.running
                    and (j.expires_at > now_) is not false and j.id <> all (leave_)
                order by j.run_at, j.seq limit room for update skip locked
            ),
            grant_ as materialized (select nextval('hawser.grants') as id where exists (select from head)),
            taken as (
                update hawser.job as j set running = true, attempt = j.attempt + 1, lease = j.lease + 1, worker = worker_, granted = g.id,
                    meters = nullif(counted_by, '{}'), started_at = now_, leased_for = least(lease_us, (j.timeout * 1000000)::bigint + grace_us),
                    lease_until = now_ + least(lease_us, (j.timeout * 1000000)::bigint + grace_us)
                from grant_ as g where j.ctid = any (array(select tid from head))
                returning j.seq, j.id, j.lane, j.kind, j.attempt, j.max_attempts, j.lease, j.run_at, j.enqueued_at, j.crashes, j.returned,
                    j.lease_until, [[claimed of j]]
            ),
            granted as (
                insert into hawser.granted (id, look_at, jobs)
                select g.id, t.look_at, t.jobs from grant_ as g, (select min(lease_until) as look_at, array_agg(taken.id) as jobs from taken) as t
                where t.jobs is not null
            ),
            counted as (
                insert into hawser.counted (minute, lane, name, count)
                select case p.name when 'claimed' then now_ / 60000000 else 0 end, t.lane, p.name, p.sign * t.count
                from (select taken.lane, taken.kind, count(*) from taken group by taken.lane, taken.kind) as t cross join lateral (
                    values ('@running', 1), ('claimed', 1),
                        (case t.kind % 4 when 3 then '@retrying' when 2 then '@timed' else '@fresh' end, -1)
                ) as p(name, sign)
            )
            select now_, version_, false, t.seq, t.id::text, t.lane, t.attempt::integer, t.max_attempts::integer, t.lease, t.run_at,
                t.enqueued_at, t.crashes::integer, t.returned::integer, [[claimed text of t]]
            from taken as t;
            get diagnostics got = row_count;
            if first[i] is not null then
                left_[first[i]] := left_[first[i]] - got;
                started[first[i]] := started[first[i]] + got;
            end if;
            if second_[i] is not null then
                left_[second_[i]] := left_[second_[i]] - got;
                started[second_[i]] := started[second_[i]] + got;
            end if;
        end if;
    end loop;
    for i in 1..cardinality(meters_) loop
        one := held[i];
        if started[i] > 0 or freed[i] > 0 then
            one.running := one.running + case when caps[i] then started[i] else 0 end;
            if rates[i] then
                one.slots[(one.slot % 16)::integer + 1] := one.slots[(one.slot % 16)::integer + 1] + started[i];
            end if;
            if one.changes < most_changes then
                update hawser.meter as m set running = one.running, slot = one.slot, slots = one.slots, folded_at = clock, changes = one.changes + 1
                where m.id = one.id and m.epoch = one.epoch;
            else
                delete from hawser.meter as m where m.id = one.id and m.epoch = one.epoch;
                insert into hawser.meter (id, epoch, running, slot, slots, folded_at)
                values (one.id, one.epoch + 1, one.running, one.slot, one.slots, clock);
            end if;
        end if;
    end loop;
end
$$;

-- A job of a group has left: it ended its run, or waited and is gone or stands in another place. A run frees the places that it had. The
-- others of its group may have waited for it, if their order is kept. Only adds to what others share: the transaction may last.
create or replace function hawser.free_places() returns trigger language plpgsql as $$
begin
    if old.running then
        insert into hawser.freed (meter, at, group_name)
        select m, (extract(epoch from clock_timestamp()) * 1000000)::bigint, old.group_name from unnest(old.meters) as m;
    else
        insert into hawser.freed (meter, at, group_name, runs)
        select r.id, (extract(epoch from clock_timestamp()) * 1000000)::bigint, old.group_name, 0
        from hawser.lane as l join hawser.limited as r on r.kind = 'task' and r.name = l.task and r.ordered where l.id = old.lane;
    end if;
    return null;
end
$$;

-- Lets claims look at groups of a task again that are kept back: at those of these names, or at all.
create or replace function hawser.reopen_groups(given bigint, task_ text, names text[]) returns void language sql as $$
    insert into hawser.arrived (lane, group_name, due_at, reopens)
    select t.lane, t.group_name, hawser.now(given), true
    from hawser.lane as l cross join unnest(names) as n(name) cross join lateral (
        select g.lane, g.group_name from hawser.group_turn as g
        where g.lane = l.id and g.group_name = n.name and g.turn is null and (g.shut or g.due_at is null) limit 1
    ) as t where l.task = task_ and l.grouped and names is not null
    union all
    select t.lane, t.group_name, hawser.now(given), true
    from hawser.lane as l cross join lateral (
        select g.lane, g.group_name from hawser.group_turn as g where g.lane = l.id and g.turn is null and (g.shut or g.due_at is null)
    ) as t where l.task = task_ and l.grouped and names is null
$$;

-- Takes the runs of groups that have ended off their counts, and lets claims look at these groups again; says how many groups that are.
-- Only under the lock of the limit's meter.
create or replace function hawser.fold_groups(given bigint, rule hawser.limited, since bigint) returns integer language plpgsql as $$
declare
    names text[];
    runs_ integer[];
begin
    with over as (
        delete from hawser.freed as f where f.meter = rule.id and f.at >= since returning f.group_name, f.runs
    )
    select array_agg(o.group_name), array_agg(o.runs) into names, runs_
    from (select o.group_name, sum(o.runs)::integer as runs from over as o where o.group_name is not null group by o.group_name) as o;
    if names is null then
        return 0;
    end if;
    update hawser.group_meter as m set running = greatest(m.running - w.runs, 0)
    from unnest(names, runs_) as w(name, runs) cross join lateral (
        select g.ctid as tid from hawser.group_meter as g where g.limit_id = rule.id and g.group_name = w.name limit 1
    ) as g where m.ctid = g.tid and w.runs > 0;
    perform hawser.reopen_groups(given, rule.name, names);
    return cardinality(names);
end
$$;

-- What a limit per group leaves of a group; and when its rate lets the next one start, if that keeps jobs back.
create or replace function hawser.group_room(at bigint, rule hawser.limited, name text, out places integer, out opens_at bigint)
language plpgsql as $$
declare
    one hawser.group_meter;
    slot_ bigint;
    left_ integer;
begin
    select m.* into one from hawser.group_meter as m where m.limit_id = rule.id and m.group_name = name;
    places := 2147483647;
    if rule.running is not null then
        places := rule.running - coalesce(one.running, 0);
    end if;
    if rule.starts is not null then
        left_ := 0;
        if one.slots is not null then
            slot_ := at / rule.width;
            if slot_ < one.slot and one.slot - slot_ < 16 then
                slot_ := one.slot;
            end if;
            one.slots := hawser.moved(one.slots, one.slot, slot_);
            left_ := (select sum(s) from unnest(one.slots) as s);
        end if;
        places := least(places, rule.starts - left_);
        if left_ >= rule.starts then
            -- A loop counts in integers, and the number of a slot of a short period is larger.
            for n in 1 .. 16 loop
                left_ := left_ - one.slots[((slot_ + n) % 16)::integer + 1];
                opens_at := (slot_ + n) * rule.width;
                exit when left_ < rule.starts;
            end loop;
        end if;
    end if;
    places := greatest(places, 0);
end
$$;

-- The job that goes before all others of an ordered group: the one that has started and not ended, else the one that is due for longest, in
-- whatever queue and priority.
create or replace function hawser.first_of_group(
    at bigint, rule hawser.limited, name text, out id uuid, out lane integer, out run_at bigint, out running boolean, out started boolean
) language plpgsql as $$
begin
    select j.id, j.lane, j.run_at, j.running, true into id, lane, run_at, running, started
    from hawser.group_meter as m join hawser.job as j on j.id = any (array[m.head])
    where m.limit_id = rule.id and m.group_name = name;
    if id is not null then
        return;
    end if;
    select j.id, j.lane, j.run_at, false, false into id, lane, run_at, running, started
    from hawser.lane as l
    left join lateral (select t.begin_at from hawser.group_turn as t where t.lane = l.id and t.group_name = name limit 1) as t on true
    left join lateral (
        select min(a.due_at) as due_at from hawser.arrived as a where a.lane = l.id and a.group_name = name
    ) as a on true
    cross join (values (4), (5), (6), (7)) as k(kind)
    cross join lateral (
        select j.id, j.lane, j.run_at, j.seq from hawser.job as j
        where j.lane = l.id and j.group_name = name and j.kind = k.kind and not j.running and (j.expires_at > at) is not false
            and j.run_at >= case when t.begin_at is null then 0 else least(t.begin_at, a.due_at) end
        order by j.run_at, j.seq limit 1
    ) as j
    where l.task = rule.name and l.grouped order by j.run_at, j.seq limit 1;
end
$$;

-- Where a group with a limit stands after a claim, as in `stores/group_limits.py`: whether it has a turn, else the time at which it gets one,
-- and whether a job that comes to it does not open it.
create or replace function hawser.place_of_group(
    at bigint, of_lane integer, limit_ integer, name text, next_due bigint, out has_turn boolean, out due_at bigint, out shut boolean
) language plpgsql strict as $$
declare
    rule hawser.limited;
    left_ record;
    first record;
begin
    select l.* into rule from hawser.limited as l where l.id = limit_;
    select * into left_ from hawser.group_room(at, rule, name);
    if left_.places <= 0 then
        has_turn := false;
        due_at := left_.opens_at;
        shut := true;
        return;
    end if;
    has_turn := next_due <= at;
    due_at := next_due;
    shut := false;
    if not rule.ordered then
        return;
    end if;
    select * into first from hawser.first_of_group(at, rule, name);
    if first.id is null then
        return;
    end if;
    shut := first.started;
    has_turn := not first.running and first.lane = of_lane and first.run_at <= at;
    due_at := case when not first.running and first.lane = of_lane then first.run_at end;
    if first.lane <> of_lane then
        insert into hawser.arrived (lane, group_name, due_at, reopens)
        select t.lane, t.group_name, at, true from hawser.group_turn as t
        where t.lane = first.lane and t.group_name = name and t.turn is null and (t.shut or t.due_at is null);
    end if;
end
$$;

-- Counts starts of groups: those of each name, and the last job that started. Only under the lock of the limit's meter.
create or replace function hawser.start_in_groups(at bigint, rule hawser.limited, names text[], counts integer[], heads uuid[])
returns void language plpgsql as $$
declare
    slot_ bigint;
    kept_slot bigint;
    one hawser.group_meter;
begin
    for i in 1..cardinality(names) loop
        select m.* into one from hawser.group_meter as m where m.limit_id = rule.id and m.group_name = names[i];
        kept_slot := coalesce(one.slot, 0);
        if rule.starts is not null then
            slot_ := at / rule.width;
            if one.slots is null then
                one.slots := array_fill(0, array[16]);
                kept_slot := slot_;
            end if;
            if slot_ < kept_slot and kept_slot - slot_ < 16 then
                slot_ := kept_slot;
            end if;
            one.slots := hawser.moved(one.slots, kept_slot, slot_);
            one.slots[(slot_ % 16)::integer + 1] := one.slots[(slot_ % 16)::integer + 1] + counts[i];
            kept_slot := slot_;
        end if;
        insert into hawser.group_meter as m (limit_id, group_name, running, head, slot, slots)
        values (rule.id, names[i], case when rule.running is null then 0 else counts[i] end, case when rule.ordered then heads[i] end,
            kept_slot, one.slots)
        on conflict (limit_id, group_name) do update
        set running = m.running + excluded.running, head = coalesce(excluded.head, m.head), slot = excluded.slot, slots = excluded.slots;
    end loop;
end
$$;

-- Counts the runs of a limit anew, and marks those that began before there was one. Rows that are locked, because their run is about
-- to end, are not waited for.
create or replace function hawser.recount(limit_ integer) returns void language plpgsql as $$
declare
    rule hawser.limited;
    one hawser.meter;
    of_lanes integer[];
    names text[];
begin
    select m.* into one from hawser.meter as m where m.id = limit_ order by m.epoch desc limit 1 for update;
    select l.* into rule from hawser.limited as l where l.id = limit_;
    if one.id is null or rule.id is null then
        return;
    end if;
    if rule.running is not null then
        of_lanes := array(select l.id from hawser.lane as l where rule.name = case rule.kind when 'queue' then l.queue else l.task end);
        update hawser.job as j set meters = j.meters || limit_ where j.ctid = any (array(
            select j.ctid from hawser.granted as g cross join lateral unnest(g.jobs) as w(id) join hawser.job as j on j.id = any (array[w.id])
            where j.running and j.granted = g.id and j.lane = any (of_lanes) and limit_ <> all (coalesce(j.meters, '{}'))
                and (not rule.per_group or j.group_name is not null)
            for update of j skip locked
        ));
    end if;
    -- One statement: a run that ends meanwhile is either counted and freed later, or neither.
    if not rule.per_group then
        with gone as (delete from hawser.freed as f where f.meter = limit_)
        update hawser.meter as m set changes = m.changes + 1, running = (
            select count(*) from hawser.granted as g cross join lateral unnest(g.jobs) as w(id) join hawser.job as j on j.id = any (array[w.id])
            where j.running and j.granted = g.id and limit_ = any (j.meters)
        ) where m.id = one.id and m.epoch = one.epoch;
        return;
    end if;
    with gone as (delete from hawser.freed as f where f.meter = limit_ returning f.group_name),
    counted as materialized (
        select j.group_name, count(*)::integer as runs
        from hawser.granted as g cross join lateral unnest(g.jobs) as w(id) join hawser.job as j on j.id = any (array[w.id])
        where j.running and j.granted = g.id and limit_ = any (j.meters) and j.group_name is not null group by j.group_name
    ),
    more as (
        insert into hawser.group_meter as m (limit_id, group_name, running) select limit_, c.group_name, c.runs from counted as c
        on conflict (limit_id, group_name) do update set running = excluded.running where m.running <> excluded.running
        returning m.group_name
    ),
    none as (
        update hawser.group_meter as m set running = 0
        where m.limit_id = limit_ and m.running > 0 and not exists (select from counted as c where c.group_name = m.group_name)
        returning m.group_name
    )
    select array_agg(n.group_name) into names from (
        select g.group_name from gone as g where g.group_name is not null
        union select m.group_name from more as m union select n.group_name from none as n
    ) as n;
    if names is not null then
        perform hawser.reopen_groups(null, rule.name, names);
    end if;
end
$$;

-- Records a step in a transaction of its handler's own, with the handler's rows, as the statement `record_steps` does: the time of the
-- record; null when the run stands no more, or the name is taken. What `finish_inside` says of isolation holds here, too.
create or replace function hawser.record_inside(given bigint, run uuid, run_lease bigint, step_name text, step_value bytea)
returns bigint language plpgsql set enable_seqscan = off as $$
declare
    at_ bigint := hawser.now(given);
    run_lane integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'a step is recorded under read committed only' using errcode = 'HW004',
            detail = current_setting('transaction_isolation');
    end if;
    perform set_config('idle_in_transaction_session_timeout', '10000', true);
    select j.lane into run_lane from hawser.job as j where j.id = run and j.lease = run_lease and j.running for no key update of j;
    if run_lane is null then
        return null;
    end if;
    insert into hawser.step as s (job, name, kind, value, at, lease) values (run, step_name, 'step', step_value, at_, run_lease)
    on conflict (job, name) do nothing;
    if not found then
        return null;
    end if;
    update hawser.job as j set attempt = 1 where j.id = run and j.attempt > 1;
    insert into hawser.counted (minute, lane, name, count) values (at_ / 60000000, run_lane, 'steps', 1);
    return at_;
end
$$;

-- Settles one run as done in a transaction of its handler's own, as the statement `finish` does; null when the run stands no more. An
-- extension of the lease since the transaction began would make it fail under any other isolation than read committed, at every long
-- run: that is refused with its reason.
create or replace function hawser.finish_inside(given bigint, run uuid, run_lease bigint, run_result bytea, keep boolean)
returns integer language plpgsql set enable_seqscan = off as $$
declare
    at bigint := hawser.now(given);
    g hawser.job;
    freed_lane integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'a job is settled under read committed only' using errcode = 'HW004',
            detail = current_setting('transaction_isolation');
    end if;
    -- From here on the row of the job is locked, and reclaimers wait for it: a process that is frozen before its commit is cut off.
    perform set_config('idle_in_transaction_session_timeout', '10000', true);
    delete from hawser.job as j where j.id = run and j.lease = run_lease and j.running returning j.* into g;
    if g.id is null then
        return null;
    end if;
    if keep then
        insert into hawser.done (day, finished_at, run_at, lease, attempt, crashes, cancel_asked, result, [[along]], attempts)
        select at / 86400000000, at, g.run_at, g.lease, g.attempt, g.crashes, g.cancel_asked, run_result, [[along of g]],
            case when g.lease > 1 then (
                select json_agg(json_build_array(a.number, a.lease, a.worker, a.started_at, a.ended_at, a.outcome, a.error, a.traceback)
                    order by a.lease)::text
                from hawser.attempt as a where a.job = g.id
            ) end;
    else
        delete from hawser.step as s where s.job = g.id;
        delete from hawser.output as o where o.job = g.id;
    end if;
    delete from hawser.attempt as a where a.job = g.id;
    insert into hawser.ended_upstream (job, state) select g.id, 'done'
    where (select dependencies from hawser.control) and exists (select from hawser.dependency as d where d.job = g.id);
    if g.batch is not null then
        insert into hawser.batch_change (batch, done) values (g.batch, 1);
    end if;
    if g.key is not null and (g.key_ttl < 'infinity' or not keep) then
        delete from hawser.held_key as k where k.job_id = g.id and k.key = g.key and (k.until is null or k.until <= at)
        returning k.lane into freed_lane;
    end if;
    insert into hawser.counted (minute, lane, name, count)
    select case when p.name like '@%' then 0 else at / 60000000 end, g.lane, p.name, p.sign
    from (values ('@running', -1), ('@done', keep::integer), ('done', 1), ('ended:' || least(g.attempt, 99), 1)) as p(name, sign)
    where p.sign <> 0
    union all select 0, freed_lane, '@keys', -1 where freed_lane is not null;
    return g.lane;
end
$$;

-- Claims the probe of a task whose breaker is open, under its limits. The breaker is locked first, and asked again then whether a probe is
-- due: of many claimers one gets it, also when the one before has died since.
create or replace function hawser.take_probe_job(
    probed text, given bigint, known_version bigint, lanes integer[], kinds smallint[], run_ats bigint[], seqs bigint[], places integer[],
    worker_ text, lease_us bigint, grace_us bigint, good_until bigint, leave_ uuid[], meters_ integer[], epochs bigint[], first integer[],
    second_ integer[], slack_us bigint, most_changes integer
) returns table (
    now bigint, version bigint, mixed boolean, seq bigint, id text, lane integer, attempt integer, max_attempts integer, lease bigint,
    run_at bigint, enqueued_at bigint, crashes integer, returned integer, [[claimed columns]]
) language plpgsql as $$
#variable_conflict use_column
declare
    one record;
begin
    perform from hawser.breaker as b where b.task = probed and b.open and b.probe_at <= hawser.now(given) for update;
    if not found then
        return query select hawser.now(given), known_version, false, null::bigint, null::text, null::integer, null::integer, null::integer,
            null::bigint, null::bigint, null::bigint, null::integer, null::integer, [[claimed nulls]];
        return;
    end if;
    for one in select * from hawser.take_limited_jobs(given, known_version, lanes, kinds, run_ats, seqs, places, worker_, lease_us, grace_us,
        good_until, leave_, meters_, epochs, first, second_, slack_us, most_changes)
    loop
        if one.seq is not null then
            update hawser.breaker as b set probe_at = one.now + b.probe_every, probe_id = one.id::uuid, probe_lease = one.lease
            where b.task = probed;
            update hawser.control as c set version = greatest(c.version + 1, hawser.now(null));
        end if;
        select one.now, one.version, one.mixed, one.seq, one.id, one.lane, one.attempt, one.max_attempts, one.lease, one.run_at,
            one.enqueued_at, one.crashes, one.returned, [[claimed of one]]
        into now, version, mixed, seq, id, lane, attempt, max_attempts, lease, run_at, enqueued_at, crashes, returned, [[claimed]];
        return next;
    end loop;
end
$$;

-- Gives every group a turn, whatever is known of when it is due. Under the locks of `take_turns`, of all queues: a claim that draws a higher
-- turn and commits it first would take it for the lowest, and its process would not look below it again.
create or replace function hawser.look_at_all_groups() returns void language plpgsql as $$
declare
    queue_ text;
    queues text[] := '{}';
begin
    for queue_ in select distinct l.queue from hawser.lane as l where l.grouped order by 1 loop
        perform pg_advisory_xact_lock(hashtext('hawser.turns'), hashtext(queue_));
        queues := queues || queue_;
    end loop;
    update hawser.arrived as a set due_at = 0 from hawser.lane as l where l.id = a.lane and l.queue = any (queues);
    update hawser.group_turn as t set turn = coalesce(t.turn, nextval('hawser.turns')), due_at = null, begin_at = 0, shut = false
    from hawser.lane as l where l.id = t.lane and l.queue = any (queues);
end
$$;

-- Gives turns to groups that jobs have come to, and to those whose next job has become due. Groups that are shut stay so, unless a job of
-- them has left, or their time has come. Only under the lock of `take_turns`.
create or replace function hawser.open_groups(at bigint, lanes integer[]) returns void language plpgsql as $$
declare
    come record;
begin
    with come as (delete from hawser.arrived as a where a.lane = any(lanes) returning a.lane, a.group_name, a.due_at, a.seq, a.reopens)
    select array_agg(c.lane order by c.seq) filter (where not c.reopens) as lanes,
        array_agg(c.group_name order by c.seq) filter (where not c.reopens) as names,
        array_agg(c.due_at order by c.seq) filter (where not c.reopens) as dues,
        array_agg(c.lane order by c.seq) filter (where c.reopens) as shut_lanes,
        array_agg(c.group_name order by c.seq) filter (where c.reopens) as shut_names
    into come from come as c;

    if come.lanes is not null then
        insert into hawser.group_turn as t (lane, group_name, turn, due_at, begin_at)
        select f.lane, f.group_name, case when f.due_at <= at then nextval('hawser.turns') end, case when f.due_at > at then f.due_at end,
            f.due_at
        from (
            select c.lane, c.group_name, min(c.due_at) as due_at from unnest(come.lanes, come.names, come.dues) with ordinality
                as c(lane, group_name, due_at, n) group by c.lane, c.group_name order by min(c.n)
        ) as f
        on conflict (lane, group_name) do update set turn = case when t.shut then t.turn else coalesce(t.turn, excluded.turn) end,
            due_at = case when t.shut then t.due_at when t.turn is null and excluded.turn is null then least(t.due_at, excluded.due_at) end,
            begin_at = least(t.begin_at, excluded.begin_at);
    end if;
    if come.shut_lanes is not null then
        update hawser.group_turn as t set turn = nextval('hawser.turns'), due_at = null, shut = false
        from (select distinct c.lane, c.group_name from unnest(come.shut_lanes, come.shut_names) as c(lane, group_name)) as c cross join lateral (
            select g.ctid as tid from hawser.group_turn as g
            where g.lane = c.lane and g.group_name = c.group_name and g.turn is null and (g.shut or g.due_at is null) limit 1
        ) as g where t.ctid = g.tid;
    end if;

    update hawser.group_turn as t set turn = nextval('hawser.turns'), due_at = null, shut = false from unnest(lanes) as l(lane) cross join lateral (
        select g.ctid as tid from hawser.group_turn as g where g.lane = l.lane and g.due_at is not null and g.due_at <= at
        order by g.due_at limit 1000
    ) as d where t.ctid = d.tid;
end
$$;

-- The due jobs of one group that a claim may take, locked. Half of the places, by turns, are for those that had to wait for their time.
create or replace function hawser.due_of_group(
    at bigint, lanes integer[], rooms integer[], name text, places integer, odd integer, without uuid[], out tids tid[], out of_lanes integer[],
    out seqs bigint[]
) language sql as $$
    select array_agg(r.tid order by r.run_at, r.seq), array_agg(r.lane order by r.run_at, r.seq),
        array_agg(r.seq order by r.run_at, r.seq)
    from (
        select p.* from (
            select h.*, h.late and row_number() over (partition by h.late order by h.run_at, h.seq) <= (places + odd) / 2 as reserved,
                row_number() over (partition by h.lane order by h.run_at, h.seq) as n
            from (
                select j.tid, j.lane, j.run_at, j.seq, k.kind > 5 and j.run_at <= at - 500000 as late, l.room
                from unnest(lanes, rooms) as l(lane, room)
                cross join lateral (
                    select t.begin_at from hawser.group_turn as t where t.lane = l.lane and t.group_name = name limit 1
                ) as b
                cross join (values (4), (5), (6), (7)) as k(kind)
                cross join lateral (
                    select j.ctid as tid, j.lane, j.run_at, j.seq from hawser.job as j
                    where j.lane = l.lane and j.group_name = name and j.kind = k.kind and j.run_at >= b.begin_at and j.run_at <= at
                        and not j.running and (j.expires_at > at) is not false and j.id <> all (without)
                    order by j.run_at, j.seq limit least(places, l.room) for update skip locked
                ) as j
            ) as h
        ) as p
        where p.room is null or p.n <= p.room
        order by p.reserved desc, p.run_at, p.seq limit places
    ) as r
$$;

-- Starts the jobs of a claim, and says which. `caps_of` has the limits that count the runs of a lane.
create or replace function hawser.start_grouped(at bigint, tids tid[], worker_ text, lease_us bigint, grace bigint, caps_of jsonb)
returns table (id uuid, lease bigint) language sql as $$
    with grant_ as materialized (select nextval('hawser.grants') as id),
    taken as (
        update hawser.job as j set running = true, attempt = j.attempt + 1, lease = j.lease + 1, worker = worker_, granted = g.id,
            meters = case when caps_of is not null then (
                select array_agg(m::integer) from jsonb_array_elements_text(caps_of -> j.lane::text) as m) end,
            started_at = at, leased_for = least(lease_us, (j.timeout * 1000000)::bigint + grace),
            lease_until = at + least(lease_us, (j.timeout * 1000000)::bigint + grace)
        from grant_ as g where j.ctid = any (tids)
        returning j.ctid, j.id, j.lane, j.kind, j.lease, j.lease_until
    ),
    granted as (
        insert into hawser.granted (id, look_at, jobs)
        select g.id, t.look_at, t.jobs from grant_ as g, (select min(t.lease_until) as look_at, array_agg(t.id) as jobs from taken as t) as t
        where t.jobs is not null
    ),
    counted as (
        insert into hawser.counted (minute, lane, name, count)
        select case p.name when 'claimed' then at / 60000000 else 0 end, t.lane, p.name, p.sign * t.count
        from (select t.lane, t.kind % 4 as kind, count(*) from taken as t group by 1, 2) as t cross join lateral (
            values ('@running', 1), ('claimed', 1), (case when t.kind = 3 then '@retrying' when t.kind = 2 then '@timed' else '@fresh' end, -1)
        ) as p(name, sign)
    )
    select t.id, t.lease from taken as t
$$;

-- After a claim has served groups: their next turns, or the time of their next job. A group that has nothing waiting is forgotten.
-- `limits` has for each lane the limit per group of its task, or null.
create or replace function hawser.close_groups(at bigint, lanes integer[], limits integer[], names text[], turns bigint[], served_ bigint[])
returns void language plpgsql as $$
begin
    with place as materialized (
        select t.ctid as tid, w.turn, w.served, d.due_at as next_due, coalesce(p.has_turn, d.due_at <= at) as has_turn,
            case when p.has_turn is null then d.due_at else p.due_at end as due_at, coalesce(p.shut, false) as shut
        from unnest(names, turns, served_) as w(name, turn, served)
        cross join unnest(lanes, limits) as l(lane, limit_)
        cross join lateral (
            select g.ctid, g.begin_at from hawser.group_turn as g where g.lane = l.lane and g.group_name = w.name limit 1
        ) as t
        cross join lateral (
            select min(h.run_at) as due_at from (values (4), (5), (6), (7)) as k(kind) cross join lateral (
                select j.run_at from hawser.job as j
                where j.lane = l.lane and j.group_name = w.name and j.kind = k.kind and j.run_at >= t.begin_at and not j.running
                    and (j.expires_at > at) is not false
                order by j.run_at, j.seq limit 1
            ) as h
        ) as d
        left join lateral hawser.place_of_group(at, l.lane, l.limit_, w.name, d.due_at) as p on true
    ),
    forgotten as (
        delete from hawser.group_turn as t where t.ctid = any (array(select p.tid from place as p where p.next_due is null))
    )
    update hawser.group_turn as t set turn = case when p.has_turn then p.turn end, due_at = case when not p.has_turn then p.due_at end,
        shut = p.shut, begin_at = p.next_due, served = p.served
    from place as p where t.ctid = p.tid and p.next_due is not null;
end
$$;

-- What keeps a waiting job of a group back; no row when it does not wait, or has no group. Groups and jobs are counted up to a number.
create or replace function hawser.group_wait(given bigint, wanted uuid, most integer) returns table (
    said text, runs integer, started integer, opens_at bigint, first uuid, first_runs boolean, groups integer, jobs integer
) language plpgsql as $$
declare
    at bigint := hawser.now(given);
    j hawser.job;
    l hawser.lane;
    rule hawser.limited;
    one hawser.group_meter;
    own bigint;
begin
    select * into j from hawser.job as w where w.id = wanted and not w.running and w.held is null and w.group_name is not null;
    if j.id is null then
        return;
    end if;
    select * into l from hawser.lane as w where w.id = j.lane;
    select t.turn into own from hawser.group_turn as t where t.lane = j.lane and t.group_name = j.group_name;
    select count(*) into groups from (
        select distinct t.name from hawser.lane as a cross join lateral (
            select t.group_name as name from hawser.group_turn as t
            where t.lane = a.id and t.turn is not null and (own is null or t.turn < own) and t.group_name <> j.group_name
            order by t.turn limit most
        ) as t where a.queue = l.queue and a.priority = l.priority and a.grouped limit most
    ) as before;
    select count(*) into jobs from (
        select from hawser.lane as a cross join (values (4), (5), (6), (7)) as k(kind) cross join lateral (
            select from hawser.job as o
            where o.lane = a.id and o.group_name = j.group_name and o.kind = k.kind and (o.run_at, o.seq) < (j.run_at, j.seq) and not o.running
            limit most
        ) as o where a.queue = l.queue and a.priority = l.priority and a.grouped limit most
    ) as before;
    runs := 0;
    started := 0;
    first_runs := false;
    select * into rule from hawser.limited as r where r.kind = 'task' and r.name = l.task and r.per_group;
    if rule.id is not null then
        said := coalesce(rule.chosen, rule.declared);
        select * into one from hawser.group_meter as m where m.limit_id = rule.id and m.group_name = j.group_name;
        runs := coalesce(one.running, 0) - coalesce((
            select sum(f.runs) from hawser.freed as f where f.meter = rule.id and f.group_name = j.group_name), 0)::integer;
        select r.opens_at into opens_at from hawser.group_room(at, rule, j.group_name) as r;
        if rule.starts is not null and one.slots is not null then
            started := (select sum(s) from unnest(hawser.moved(one.slots, one.slot, greatest(one.slot, at / rule.width))) as s);
        end if;
        if rule.ordered then
            select f.id, f.running into first, first_runs from hawser.first_of_group(at, rule, j.group_name) as f;
        end if;
    end if;
    return next;
end
$$;

-- Claims jobs with groups of one queue and priority. The first row of the answer has the time, the number of the directory, the places
-- that are the turn of the jobs without a group, of which `ungrouped_due` are due, the order of the jobs, and the lowest turn of each lane, where the next
-- claim may begin to read: turns only rise. The others have the jobs. `rooms` has how many may be taken of each lane; null: any number.
-- Claims on the groups of a queue wait for each other: so turns are exact whatever the number of claimers. Each takes milliseconds and
-- waits for nothing else but meters of limits, as in `take_limited_jobs`; `ungrouped` is -1 when one of those was not where it was looked for.
-- The lock comes first: what is read behind it is what the claim before has left. `own` has for each lane the place of the limit per group
-- of its task among the meters, or null.
create or replace function hawser.take_turns(
    given bigint, expected bigint, good_until bigint, queue_ text, priority_ smallint, lanes integer[], rooms integer[], from_turns bigint[],
    places integer, ungrouped_due integer, worker_ text, lease_us bigint, grace bigint, without uuid[],
    meters_ integer[], epochs bigint[], first integer[], second_ integer[], own integer[], slack_us bigint, most_changes integer
) returns table (now bigint, version bigint, ungrouped integer, first_turns bigint[], seqs bigint[], id uuid, lease bigint) language plpgsql as $$
declare
    left_ integer := places;
    plain integer := 0;
    fits bigint;
    had integer;
    offered integer;
    turns_ bigint; -- the slot of a rate
    g record;
    h record;
    all_tids tid[];
    names text[];
    turns bigint[];
    served_ bigint[];
    skipped text[] := '{}'; -- groups that have nothing to give to this claim
    lane_ integer;
    place integer;
    clock bigint;
    rule hawser.limited;
    rules hawser.limited[];
    limits integer[] := array(select meters_[o] from unnest(own) as o);
    group_rooms integer[];
    firsts uuid[]; -- the jobs of ordered groups that may start
    first_job record;
    started_names text[];
    started_of integer[];
    started_counts integer[];
    started_heads uuid[];
    held hawser.meter[];
    one hawser.meter;
    lefts integer[] := '{}';
    started integer[] := '{}';
    freed_ integer[] := '{}';
    caps boolean[] := '{}';
    rates boolean[] := '{}';
    counted_by integer[];
    caps_of jsonb;
begin
    perform pg_advisory_xact_lock(hashtext('hawser.turns'), hashtext(queue_));
    clock := hawser.now(null);
    for i in 1..cardinality(meters_) loop
        select m.* into one from hawser.meter as m where m.id = meters_[i] and m.epoch >= epochs[i] order by m.epoch desc limit 1 for update;
        if not found then
            now := hawser.now(given);
            version := expected;
            ungrouped := -1;
            return next;
            return;
        end if;
        held[i] := one;
    end loop;
    now := hawser.now(given);
    select c.version into version from hawser.control as c;
    if version <> expected or now >= good_until then
        return next;
        return;
    end if;
    for i in 1..cardinality(meters_) loop
        one := held[i];
        select l.* into rule from hawser.limited as l where l.id = meters_[i];
        rules[i] := rule;
        if rule.per_group then
            freed_[i] := hawser.fold_groups(given, rule, one.folded_at - slack_us);
            started[i] := 0;
            caps[i] := rule.running is not null;
            rates[i] := false;
            lefts[i] := 2147483647;
            continue;
        end if;
        with over as (delete from hawser.freed as f where f.meter = meters_[i] and f.at >= one.folded_at - slack_us returning f.runs)
        select coalesce(sum(o.runs), 0) into had from over as o;
        one.running := one.running - had;
        freed_[i] := had;
        started[i] := 0;
        caps[i] := rule.running is not null;
        rates[i] := rule.starts is not null;
        lefts[i] := 2147483647;
        if caps[i] then
            lefts[i] := rule.running - one.running;
        end if;
        if rates[i] then
            turns_ := now / rule.width;
            if turns_ < one.slot and one.slot - turns_ < 16 then
                turns_ := one.slot;
            end if;
            one.slots := hawser.moved(one.slots, one.slot, turns_);
            one.slot := turns_;
            lefts[i] := least(lefts[i], rule.starts - (select sum(s) from unnest(one.slots) as s));
        end if;
        lefts[i] := greatest(lefts[i], 0);
        if rule.kind = 'queue' then
            left_ := least(left_, lefts[i]);
        end if;
        held[i] := one;
    end loop;
    if meters_ <> '{}' then
        for i in 1..cardinality(lanes) loop
            rooms[i] := least(rooms[i], lefts[first[i]], lefts[second_[i]]);
            counted_by := array_remove(array[case when caps[first[i]] then meters_[first[i]] end, case when caps[second_[i]] then meters_[second_[i]] end,
                case when caps[own[i]] then meters_[own[i]] end], null);
            if counted_by <> '{}' then
                caps_of := coalesce(caps_of, '{}') || jsonb_build_object(lanes[i]::text, to_jsonb(counted_by));
            end if;
        end loop;
    end if;
    perform hawser.open_groups(now, lanes);
    seqs := '{}';
    loop
        all_tids := '{}';
        names := '{}';
        turns := '{}';
        served_ := '{}';
        started_names := '{}';
        started_of := '{}';
        started_counts := '{}';
        started_heads := '{}';
        had := left_;
        -- What limits and workers leave of all lanes bounds the rounds, too, or the first group would take all of it.
        fits := least(left_, case when array_position(rooms, null) is null then (select sum(r) from unnest(rooms) as r) end);
        for g in
            with open_ as materialized (
                select r.name, min(r.turn) as turn, max(r.served) as served
                from unnest(lanes, rooms, from_turns) as l(lane, room, from_turn) cross join lateral (
                    select t.group_name as name, t.turn, t.served from hawser.group_turn as t
                    where t.lane = l.lane and t.turn >= l.from_turn and t.group_name <> all (skipped)
                    order by t.turn limit left_ + cardinality(without)
                ) as r where l.room is distinct from 0 group by r.name
                union all
                select '', coalesce(u.turn, 0), coalesce(u.served, 0) from (select) as one
                left join hawser.ungrouped_turn as u on u.queue = queue_ and u.priority = priority_ where ungrouped_due > plain
            )
            select o.name, o.turn, o.served, w.weight, greatest(1, fits / sum(w.weight) over ()) as rounds
            from open_ as o cross join lateral (
                select coalesce((select w.weight from hawser.weight as w where w.queue = queue_ and w.group_name = o.name), 1) as weight
            ) as w order by o.turn limit left_ + cardinality(without)
        loop
            exit when left_ = 0;
            offered := least(g.weight * g.rounds - g.served % g.weight, left_);
            if g.name = '' then
                offered := least(offered, ungrouped_due - plain);
                plain := plain + offered;
                insert into hawser.ungrouped_turn as u (queue, priority, turn, served)
                values (queue_, priority_, nextval('hawser.turns'), g.served + offered)
                on conflict (queue, priority) do update set turn = excluded.turn, served = excluded.served;
                left_ := left_ - offered;
                continue;
            end if;
            group_rooms := rooms;
            firsts := '{}';
            for i in 1..cardinality(lanes) loop
                continue when own[i] is null or rooms[i] = 0;
                group_rooms[i] := least(rooms[i], (select r.places from hawser.group_room(now, rules[own[i]], g.name) as r));
                if rules[own[i]].ordered and group_rooms[i] > 0 then
                    select * into first_job from hawser.first_of_group(now, rules[own[i]], g.name);
                    if not first_job.running and first_job.lane = lanes[i] and first_job.run_at <= now and first_job.id <> all (without) then
                        firsts := firsts || first_job.id;
                    end if;
                    group_rooms[i] := 0;
                end if;
            end loop;
            select * into h from hawser.due_of_group(now, lanes, group_rooms, g.name, offered - least(offered, cardinality(firsts)),
                (g.served % 2)::integer, without);
            if firsts <> '{}' then
                select array_agg(j.tid) || h.tids as tids, array_agg(j.lane) || h.of_lanes as of_lanes, array_agg(j.seq) || h.seqs as seqs into h
                from (
                    select j.ctid as tid, j.lane, j.seq from hawser.job as j where j.id = any (firsts) and not j.running and (j.expires_at > now) is not false
                    order by j.run_at, j.seq limit offered for update skip locked
                ) as j;
            end if;
            if h.tids is null then
                skipped := skipped || g.name;
            else
                all_tids := all_tids || h.tids;
                seqs := seqs || h.seqs;
                left_ := left_ - cardinality(h.tids);
                g.served := g.served + cardinality(h.tids);
                foreach lane_ in array h.of_lanes loop
                    place := array_position(lanes, lane_);
                    rooms[place] := rooms[place] - 1;
                    if first[place] is not null then
                        started[first[place]] := started[first[place]] + 1;
                    end if;
                    if second_[place] is not null then
                        started[second_[place]] := started[second_[place]] + 1;
                    end if;
                    if own[place] is not null then
                        started_of := started_of || own[place];
                        started_names := started_names || g.name;
                        started_counts := started_counts || 1;
                        started_heads := started_heads || (select f.id from hawser.job as f where f.id = any (firsts) and f.lane = lane_ limit 1);
                    end if;
                end loop;
                if g.served % g.weight = 0 or cardinality(h.tids) >= g.weight then
                    g.turn := nextval('hawser.turns');
                end if;
            end if;
            names := names || g.name;
            turns := turns || g.turn;
            served_ := served_ || g.served;
        end loop;
        if all_tids <> '{}' then
            return query select take_turns.now, take_turns.version, null::integer, null::bigint[], null::bigint[], s.id, s.lease
                from hawser.start_grouped(take_turns.now, all_tids, worker_, lease_us, grace, caps_of) as s;
        end if;
        for i in 1..cardinality(meters_) loop
            if i = any (started_of) then
                perform hawser.start_in_groups(now, rules[i], array_agg(w.name), array_agg(w.starts), array_agg(w.head)) from (
                    select w.name, sum(w.starts)::integer as starts, (array_agg(w.head) filter (where w.head is not null))[1] as head
                    from unnest(started_of, started_names, started_counts, started_heads) as w(of_, name, starts, head)
                    where w.of_ = i group by w.name
                ) as w;
            end if;
        end loop;
        if names <> '{}' then
            perform hawser.close_groups(now, lanes, limits, names, turns, served_);
        end if;
        -- Groups that had nothing to give stand elsewhere now, or are left out: there may be others behind them.
        exit when left_ = 0 or left_ = had and names = '{}';
    end loop;
    for i in 1..cardinality(meters_) loop
        one := held[i];
        if started[i] > 0 or freed_[i] > 0 then
            one.running := one.running + case when caps[i] and not rules[i].per_group then started[i] else 0 end;
            if rates[i] then
                one.slots[(one.slot % 16)::integer + 1] := one.slots[(one.slot % 16)::integer + 1] + started[i];
            end if;
            if one.changes < most_changes then
                update hawser.meter as m set running = one.running, slot = one.slot, slots = one.slots, folded_at = clock, changes = one.changes + 1
                where m.id = one.id and m.epoch = one.epoch;
            else
                delete from hawser.meter as m where m.id = one.id and m.epoch = one.epoch;
                insert into hawser.meter (id, epoch, running, slot, slots, folded_at)
                values (one.id, one.epoch + 1, one.running, one.slot, one.slots, clock);
            end if;
        end if;
    end loop;
    ungrouped := plain;
    select array_agg(coalesce(t.turn, l.from_turn) order by l.n) into first_turns
    from unnest(lanes, from_turns) with ordinality as l(lane, from_turn, n) left join lateral (
        select t.turn from hawser.group_turn as t where t.lane = l.lane and t.turn >= l.from_turn order by t.turn limit 1
    ) as t on true;
    id := null;
    lease := null;
    return next;
end
$$;

-- Claims the probe of a task whose breaker is open, where its jobs have groups; see `take_probe_job` and `take_turns`.
create or replace function hawser.probe_turns(
    probed text, given bigint, expected bigint, good_until bigint, queue_ text, priority_ smallint, lanes integer[], rooms integer[],
    from_turns bigint[], places integer, ungrouped_due integer, worker_ text, lease_us bigint, grace bigint, without uuid[],
    meters_ integer[], epochs bigint[], first integer[], second_ integer[], own integer[], slack_us bigint, most_changes integer
) returns table (now bigint, version bigint, ungrouped integer, first_turns bigint[], seqs bigint[], id uuid, lease bigint) language plpgsql as $$
#variable_conflict use_column
declare
    one record;
begin
    perform from hawser.breaker as b where b.task = probed and b.open and b.probe_at <= hawser.now(given) for update;
    if not found then
        return query select hawser.now(given), expected, 0, from_turns, '{}'::bigint[], null::uuid, null::bigint;
        return;
    end if;
    for one in select * from hawser.take_turns(given, expected, good_until, queue_, priority_, lanes, rooms, from_turns, least(places, 1),
        ungrouped_due, worker_, lease_us, grace, without, meters_, epochs, first, second_, own, slack_us, most_changes)
    loop
        if one.id is not null then
            update hawser.breaker as b set probe_at = one.now + b.probe_every, probe_id = one.id, probe_lease = one.lease where b.task = probed;
            update hawser.control as c set version = greatest(c.version + 1, hawser.now(null));
        end if;
        return query select one.now, one.version, one.ungrouped, one.first_turns, one.seqs, one.id, one.lease;
    end loop;
end
$$;

-- Holds new jobs back that wait for others, in the transaction that adds them. The rows of those others are not locked: the caller's
-- transaction may go on for long, and they must be able to end meanwhile. A dependency on a job that was there before is looked at again.
create or replace function hawser.hold_back(
    given bigint, far bigint, waiters uuid[], any_ends boolean[], holds bigint[], of_ integer[], upstream uuid[], there boolean[],
    made integer, strict boolean, on_deaths boolean[]
) returns void language plpgsql as $$
declare
    first_day integer := least(made, hawser.now(given) / 86400000000) - 1;
    unknown jsonb;
begin
    if strict then
        select jsonb_agg(distinct w.job) into unknown from unnest(upstream) as w(job)
        where not exists (select from hawser.job as j where j.id = w.job)
            and not exists (select from hawser.failed as f where f.id = w.job)
            and not exists (select from hawser.done as d where d.id = w.job and d.day >= first_day)
            and not exists (select from hawser.batch as b where b.id = w.job);
        if unknown is not null then
            raise exception 'jobs that are waited for are not there' using errcode = 'HW005', detail = unknown::text;
        end if;
    end if;
    with want as materialized (
        select waiters[u.place] as waiter, any_ends[u.place] as any_end, on_deaths[u.place] as on_death, holds[u.place] as hold, u.job, u.there,
            count(*) over (partition by u.place) as total, exists (select from hawser.batch as b where b.id = u.job) as batch, coalesce(
            (select 'ready' from hawser.job as j where j.id = u.job),
            (select f.state from hawser.failed as f where f.id = u.job),
            (select 'done' from hawser.done as d where d.id = u.job and d.day >= first_day limit 1),
            (select case when b.state in ('open', 'running') then 'ready' else b.state end from hawser.batch as b where b.id = u.job),
            'unknown') as state
        from unnest(of_, upstream, there) as u(place, job, there)
    ), left_ as materialized (
        select * from want where on_death or (state <> 'done' and not (any_end and state in ('dead', 'cancelled')))
    ), depends as (
        insert into hawser.dependency (waiter, job, any_end, on_death, seen)
        select l.waiter, l.job, l.any_end, l.on_death, case when l.there and l.state not in ('cancelled', 'unknown') then 0 end from left_ as l
    ), told as (
        insert into hawser.ended_upstream (job, state, batch) select distinct l.job, l.state, l.batch from left_ as l
        where l.state in ('cancelled', 'unknown')
    ), held as (
        update hawser.job as j set held = h.hold, waits = h.total, run_at = far, kind = case when j.group_name is null then 2 else 6 end
        from (
            select o.id, o.kind, l.hold, l.total
            from (select distinct waiter, hold, total from left_) as l join hawser.job as o on o.id = any (array[l.waiter])
        ) as h
        where j.id = any (array[h.id]) returning j.lane, h.kind
    )
    insert into hawser.counted (minute, lane, name, count)
    select 0, h.lane, p.name, sum(p.sign) from held as h cross join lateral (
        values (case h.kind % 4 when 2 then '@timed' else '@fresh' end, -1), ('@timed', 1), ('@held', 1)
    ) as p(name, sign) group by h.lane, p.name having sum(p.sign) <> 0;
end
$$;

-- Counts new members of batches, in the transaction that adds them. The rows of these batches are locked so that none ends or goes before
-- this transaction does; who only counts members does not wait for that. `own` is the batch of the job that the members follow from: it
-- takes them although it has ended before, for that job was requeued since. `of_` with `others`: what a batch counts without its being one of its own jobs.
create or replace function hawser.join_batches(
    given bigint, own uuid, batches uuid[], counts integer[], of_ uuid[], others uuid[], made integer, called text
) returns void language plpgsql as $$
declare
    first_day integer := least(made, hawser.now(given) / 86400000000) - 1;
    new_of uuid[];
    new_others uuid[];
    states text[];
    refused record;
begin
    -- Those that are members already count no second time.
    select array_agg(w.batch), array_agg(w.other) into new_of, new_others
    from (select distinct u.batch, u.other from unnest(of_, others) as u(batch, other)) as w
    where not exists (select from hawser.dependency as d where d.waiter = w.batch and d.job = w.other)
        and not exists (select from hawser.job as j where j.id = w.other and j.batch = w.batch)
        and not exists (select from hawser.failed as f where f.id = w.other and f.batch = w.batch)
        and not exists (select from hawser.done as d where d.id = w.other and d.day >= first_day and d.batch = w.batch);
    perform from hawser.batch as b where b.id = any (batches || new_of) order by b.id for key share;
    select w.id, case when b.id is null then 'unknown' when b.cancelled then 'cancelled' else 'ended' end as why into refused
    from unnest(batches || new_of) as w(id) left join hawser.batch as b on b.id = w.id
    where b.id is null or b.cancelled or (b.ended_at is not null and b.id is distinct from own) limit 1;
    if found then
        raise exception 'a batch takes no more members' using errcode = 'HW006',
            detail = jsonb_build_object('batch', refused.id, 'why', refused.why, 'field', called)::text;
    end if;
    insert into hawser.batch_change (batch, members) select w.batch, w.n from unnest(batches, counts) as w(batch, n);
    if new_of is null then
        return;
    end if;
    -- One that is not kept was done.
    with new as (
        insert into hawser.dependency (waiter, job, any_end, counted, seen)
        select w.batch, w.other, true, s.state, case s.state when 'ready' then 0 end
        from unnest(new_of, new_others) as w(batch, other) cross join lateral (
            select coalesce((select 'ready' from hawser.job as j where j.id = w.other), (select f.state from hawser.failed as f where f.id = w.other),
                (select case when b.state in ('open', 'running') then 'ready' else b.state end from hawser.batch as b where b.id = w.other),
                'done') as state
        ) as s on conflict do nothing returning waiter, counted
    )
    insert into hawser.batch_change (batch, members, done, dead, given_up)
    select n.waiter, 1, (n.counted = 'done')::integer, (n.counted = 'dead')::integer, (n.counted = 'cancelled')::integer from new as n;
end
$$;

-- Adds up what changed in batches, and says which of them stand otherwise now; false when nothing had changed. Who adds up the same batch
-- at the same time is waited for, and what it has written is seen. Who adds a member is not waited for, its transaction may last: as long as it does, the batch
-- does not end.
create or replace function hawser.fold_batches(at bigint, most integer) returns boolean language plpgsql as $$
declare
    ids uuid[];
    changed boolean;
    one hawser.batch;
    next_ text;
    put_off boolean; -- it has come to its end, and must not end yet
begin
    select array_agg(distinct w.id) into ids from (
        (select c.batch as id from hawser.batch_change as c limit most) union all (select b.id from hawser.batch as b where b.due limit most)
    ) as w;
    if ids is null then
        return false;
    end if;
    perform from hawser.batch as b where b.id = any (ids) order by b.id for no key update;
    with gone as (
        delete from hawser.batch_change as c where c.batch = any (ids) returning c.*
    ), summed as materialized (
        select g.batch, sum(g.members) as members, sum(g.done) as done, sum(g.dead) as dead, sum(g.given_up) as given_up, bool_or(g.dead > 0) as died
        from gone as g group by g.batch
    ), counted as (
        update hawser.batch as b set members = b.members + s.members, done = b.done + s.done, dead = b.dead + s.dead,
            given_up = b.given_up + s.given_up, died = b.died or s.died
        from summed as s where b.id = any (array[s.batch])
    )
    select exists (select from summed) into changed;
    for one in select b.* from hawser.batch as b where b.id = any (ids) order by b.id loop
        next_ := case when not one.closed then 'open' when one.members > one.done + one.dead + one.given_up then 'running'
            when one.dead > 0 then 'dead' when one.given_up > 0 then 'cancelled' else 'done' end;
        put_off := false;
        if next_ not in ('open', 'running') and one.state in ('open', 'running') then
            perform from hawser.batch as b where b.id = one.id for update skip locked;
            if not found or exists (select from hawser.batch_change as c where c.batch = one.id) then
                if not one.due then
                    update hawser.batch as b set due = true where b.id = one.id;
                end if;
                next_ := 'running';
                put_off := true;
            end if;
        end if;
        if next_ <> one.state or (one.died and not one.death_told) then
            changed := true;
            insert into hawser.ended_upstream (job, state, batch) values (one.id, next_, true);
        end if;
        if next_ <> one.state or (one.died and not one.death_told) or (one.due and next_ <> 'running') then
            update hawser.batch as b set state = next_, death_told = b.died, due = put_off,
                ended_at = case when next_ not in ('open', 'running') and b.state in ('open', 'running') then at else b.ended_at end
            where b.id = one.id;
        elsif one.due and one.members > one.done + one.dead + one.given_up then
            update hawser.batch as b set due = false where b.id = one.id;
        end if;
    end loop;
    return changed;
end
$$;

-- Of these batches, those whose members have ended without a word: how many, and how many more of all members are dead or cancelled than
-- the batch counts. Those of which more than `most` have not ended are passed over: they are far from their end.
create or replace function hawser.uncounted(ids uuid[], most integer) returns table (batch uuid, missing bigint, dead bigint, given_up bigint)
language sql stable as $$
    select s.id, s.missing,
        (select count(*) from hawser.failed as f where f.batch = s.id and f.state = 'dead')
            + (select count(*) from hawser.dependency as d where d.waiter = s.id and d.counted = 'dead') - s.dead,
        (select count(*) from hawser.failed as f where f.batch = s.id and f.state = 'cancelled')
            + (select count(*) from hawser.dependency as d where d.waiter = s.id and d.counted = 'cancelled') - s.given_up
    from (
        select b.id, b.members - b.done - b.dead - b.given_up + c.unended - l.own - l.others as missing, b.dead + c.dead as dead,
            b.given_up + c.given_up as given_up
        from hawser.batch as b cross join lateral (
            select coalesce(sum(c.members - c.done - c.dead - c.given_up), 0) as unended, coalesce(sum(c.dead), 0) as dead,
                coalesce(sum(c.given_up), 0) as given_up
            from hawser.batch_change as c where c.batch = b.id
        ) as c cross join lateral (
            select (select count(*) from (select from hawser.job as j where j.batch = b.id limit most) as x) as own,
                (select count(*) from (select from hawser.dependency as d where d.waiter = b.id and d.counted = 'ready' limit most) as x) as others
        ) as l
        where b.id = any (ids) and l.own < most and l.others < most
    ) as s where s.missing > 0
$$;

-- Counts members that workers of the release before have ended, in some running batches behind one; gives the last of these, null when there
-- are no more. What is seen at first is looked at once more under the lock of the batch, since another process may have counted it.
create or replace function hawser.recount_batches(behind uuid, some_ integer, most integer) returns uuid language plpgsql as $$
declare
    ids uuid[];
    found_ uuid[];
begin
    ids := array(select b.id from hawser.batch as b where b.state = 'running' and b.id > behind order by b.id limit some_);
    found_ := array(select u.batch from hawser.uncounted(ids, most) as u);
    if found_ <> '{}' then
        perform from hawser.batch as b where b.id = any (found_) order by b.id for no key update;
        insert into hawser.batch_change (batch, done, dead, given_up)
        select u.batch, u.missing - d.dead - g.given_up, d.dead, g.given_up from hawser.uncounted(found_, most) as u
        cross join lateral (select greatest(0, least(u.missing, u.dead)) as dead) as d
        cross join lateral (select greatest(0, least(u.missing - d.dead, u.given_up)) as given_up) as g;
    end if;
    return ids[some_];
end
$$;

-- A job or a batch may have ended before the row could be seen that says who waits for it: looks again at some of those that are waited
-- for, at new rows only or at all whose time has come, and says whether there may be more. A row is looked at when it is new, and 2, 12 and
-- 72 s later: a transaction that ends a job is short, or lasts. What is later still is found by `tell_missed`.
create or replace function hawser.look_again(given bigint, only_new boolean, most integer) returns boolean language plpgsql as $$
declare
    at bigint := hawser.now(given);
    until bigint := case when only_new then 0 else at end;
    n integer;
begin
    with looked as materialized (
        select d.waiter, d.job, d.looks, exists (select from hawser.batch as b where b.id = d.job) as batch,
            exists (select from hawser.job as j where j.id = d.job)
                or exists (select from hawser.batch as b where b.id = d.job and b.state in ('open', 'running')) as live
        from hawser.dependency as d where d.seen <= until order by d.seen limit most for update of d skip locked
    ), noted as (
        update hawser.dependency as d set looks = l.looks + 1,
            seen = case when l.live then at + case l.looks when 0 then 2000000 when 1 then 10000000 when 2 then 60000000 end end
        from looked as l where d.waiter = l.waiter and d.job = l.job
    ), told as (
        insert into hawser.ended_upstream (job, state, batch)
        select distinct l.job, coalesce((select f.state from hawser.failed as f where f.id = l.job), 'done'), l.batch from looked as l
        -- What was told already may be that it was removed while it was dead.
        where not l.live and not exists (select from hawser.ended_upstream as e where e.job = l.job)
    )
    select count(*) into n from looked;
    return n >= most;
end
$$;

-- Goes on with what waits for some of those that came to their end. Whoever takes an end away locks those that wait for it, in one
-- order, and looks again at what they wait for: of two who end the last two jobs, the second sees what the first has done. Called until it
-- finds no more, each time in a transaction of its own, so that nobody waits in a circle. One that died before it was done left the ends here.
create or replace function hawser.go_on(given bigint, most integer, out any_ended boolean, out lanes integer[]) language plpgsql as $$
declare
    at bigint := hawser.now(given);
    jobs uuid[];
    states text[];
    are_batches boolean[];
    deaths boolean[];
    waiters uuid[];
    any_ends boolean[];
    on_deaths boolean[];
    counts text[];
    doomed uuid[];
    reasons text[];
begin
    any_ended := hawser.fold_batches(at, most);
    with gone as (
        delete from hawser.ended_upstream as e
        where e.ctid = any (array(select x.ctid from hawser.ended_upstream as x limit most for update skip locked)) returning e.job, e.state, e.batch
    )
    select array_agg(g.job), array_agg(g.state), array_agg(g.batch) into jobs, states, are_batches from gone as g;
    if jobs is null then
        return;
    end if;
    any_ended := true;
    select array_agg(d.waiter), array_agg(w.job), array_agg(w.state), array_agg(w.batch), array_agg(d.any_end), array_agg(d.on_death),
        array_agg(d.counted)
    into waiters, jobs, states, are_batches, any_ends, on_deaths, counts
    from unnest(jobs, states, are_batches) as w(job, state, batch)
    cross join lateral (select d.* from hawser.dependency as d where d.job = any (array[w.job])) as d;
    perform from hawser.job as j where j.id = any (waiters) order by j.id for update;
    perform from hawser.dependency as d where d.waiter = any (waiters) and d.job = any (jobs) and d.counted is not null
    order by d.waiter, d.job for update;

    -- From here on every statement sees what those have written who held these rows before. A job may have gone on since it ended.
    select array_agg(x.state order by x.n), array_agg(coalesce(x.died, x.state = 'dead') order by x.n) into states, deaths from (
        select w.n, case when w.batch then (select b.died from hawser.batch as b where b.id = w.job) end as died,
            case when w.state in ('removed', 'unknown') then w.state
            when w.batch then coalesce((
                select case when b.state in ('open', 'running') then 'ready' else b.state end from hawser.batch as b where b.id = w.job
            ), 'removed')
            when w.state = 'done' then w.state
            when exists (select from hawser.job as j where j.id = w.job) then 'ready'
            else coalesce((select f.state from hawser.failed as f where f.id = w.job), w.state) end as state
        from unnest(jobs, states, are_batches) with ordinality as w(job, state, batch, n)
    ) as x;
    -- Batches that count one of these.
    with again as (
        update hawser.dependency as d set counted = w.state
        from (
            select distinct on (u.waiter, u.job) u.waiter, u.job, u.state, o.counted as before
            from unnest(waiters, jobs, states) as u(waiter, job, state)
            cross join lateral (
                select o.counted from hawser.dependency as o where o.waiter = u.waiter and o.job = u.job and o.counted is not null
            ) as o
            where u.state in ('ready', 'done', 'dead', 'cancelled')
        ) as w
        where d.waiter = w.waiter and d.job = w.job and w.before <> w.state returning d.waiter, w.before, w.state
    )
    insert into hawser.batch_change (batch, done, dead, given_up)
    select a.waiter, (a.state = 'done')::integer - (a.before = 'done')::integer, (a.state = 'dead')::integer - (a.before = 'dead')::integer,
        (a.state = 'cancelled')::integer - (a.before = 'cancelled')::integer from again as a;
    delete from hawser.dependency as d using unnest(waiters, jobs, states, deaths) as w(waiter, job, state, died)
    where d.waiter = w.waiter and d.job = w.job and d.counted is null
        and case when d.on_death then w.died else w.state = 'done' or (d.any_end and w.state <> 'ready') end;
    select array_agg(x.waiter), array_agg(x.reason) into doomed, reasons from (
        select distinct on (w.waiter) w.waiter, 'it waited for ' || case when w.batch then 'batch ' else 'job ' end || w.job || ', which ' || case
            when w.state = 'removed' then 'was removed while it was dead' when w.state = 'unknown' then 'this store does not have'
            when w.on_death then 'ended without a dead job' else 'is cancelled' end as reason
        from unnest(waiters, jobs, states, are_batches, deaths, any_ends, on_deaths, counts)
            as w(waiter, job, state, batch, died, any_end, on_death, counted)
        where w.counted is null and case when w.on_death then w.state <> 'ready' and not coalesce(w.died, false)
            else w.state in ('cancelled', 'removed', 'unknown') and not w.any_end end
        order by w.waiter, w.job
    ) as x;

    with free as materialized (
        select distinct w.id from unnest(waiters) as w(id)
        where not exists (select from hawser.dependency as d where d.waiter = w.id)
    ), released as (
        update hawser.job as j set run_at = case when j.held >= 0 then at + j.held else greatest(at, -j.held) end, held = null, waits = null
        from free as f where j.id = any (array[f.id]) and j.held is not null and not j.running returning j.lane, j.group_name, j.run_at
    ), opened as (
        insert into hawser.arrived (lane, group_name, due_at)
        select r.lane, r.group_name, min(r.run_at) from released as r where r.group_name is not null group by r.lane, r.group_name
    ), counted as (
        insert into hawser.counted (minute, lane, name, count) select 0, r.lane, '@held', -count(*) from released as r group by r.lane
    )
    select array_agg(distinct r.lane) into lanes from released as r;

    if doomed is not null then
        with gone as (
            delete from hawser.job as j using unnest(doomed, reasons) as d(id, said)
            where j.id = any (array[d.id]) and j.held is not null and not j.running returning d.said, j.*
        ), ended as (
            insert into hawser.failed (seq, state, finished_at, run_at, lease, settled, attempt, crashes, cancel_asked, reason, [[along]])
            select g.seq, 'cancelled', at, g.run_at, g.lease, g.settled, g.attempt, g.crashes, g.cancel_asked, g.said, [[along of g]] from gone as g
        ), waited as (
            delete from hawser.dependency as d using gone as g where d.waiter = any (array[g.id])
        ), told as (
            insert into hawser.ended_upstream (job, state) select g.id, 'cancelled' from gone as g
            where exists (select from hawser.dependency as d where d.job = g.id)
        ), batched as (
            insert into hawser.batch_change (batch, given_up) select g.batch, count(*) from gone as g where g.batch is not null group by g.batch
        ), freed as (
            delete from hawser.held_key as k using gone as g
            where g.key is not null and g.key_ttl < 'infinity' and k.job_id = any (array[g.id]) and k.key = g.key
                and (k.until is null or k.until <= at)
            returning k.lane
        )
        insert into hawser.counted (minute, lane, name, count)
        select case when p.name like '@%' then 0 else at / 60000000 end, g.lane, p.name, sum(p.sign)
        from gone as g cross join lateral (
            values ('@timed', -1), ('@held', -1), ('@cancelled', 1), ('cancelled', 1)
        ) as p(name, sign) group by 1, 2, 3
        union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane;
    end if;
end
$$;

-- An event has come, unless one of its name did before. Who is about to say so is waited for.
create or replace function hawser.emit(given bigint, event_ text, said bytea, keep bigint, patience integer)
returns table (created boolean, at bigint, same boolean) language plpgsql as $$
declare
    now_ bigint := hawser.now(given);
    one hawser.event;
begin
    if patience is not null then
        perform set_config('lock_timeout', patience::text, true);
    end if;
    for tries in 1 .. 10 loop
        insert into hawser.event as e (name, body, at, until) values (event_, said, now_, now_ + keep) on conflict do nothing;
        if found then
            insert into hawser.stirred (event) values (event_);
            return query select true, now_, true;
            return;
        end if;
        select e.* into one from hawser.event as e where e.name = event_;
        if found then
            return query select false, one.at, one.body = said;
            return;
        end if;
        -- It was forgotten a moment ago.
    end loop;
    raise exception 'another transaction emits and forgets the same event' using errcode = '40001';
end
$$;

-- Holds a job that has just left running in this transaction. The row of its event is not looked at, so that no emitter is waited for: the
-- name is appended, and who takes that away sees the event as well as the wait, whichever was committed first. The time of a wait that
-- lasts already goes on.
create or replace function hawser.hold_run(
    given bigint, far bigint, run uuid, run_lease bigint, step_ text, said bytea, lasts bigint, event_ text
) returns void language plpgsql as $$
declare
    at bigint := hawser.now(given);
begin
    insert into hawser.step as s (job, name, kind, value, at, lease, until, event)
    values (run, step_, 'wait', said, at, run_lease, at + lasts, event_)
    on conflict (job, name) do update set kind = 'wait', value = excluded.value, event = excluded.event where s.kind in ('wait', 'woken');
    if event_ is not null then
        with held as (
            update hawser.job as j set held = 0, waits = null, run_at = far where j.id = run returning j.lane
        )
        insert into hawser.counted (minute, lane, name, count) select 0, h.lane, '@held', 1 from held as h;
        insert into hawser.stirred (event) values (event_);
    end if;
end
$$;

-- Goes on with jobs whose event has come or whose time is over. Whoever takes a name away does so after its commit, so of a wait and an
-- event the one that was committed later finds the other. The jobs are locked in one order; a wait that another process has ended
-- meanwhile is passed over. One that died before it was done left the names, and the times, here.
create or replace function hawser.wake_waiting(given bigint, most integer, overdue boolean, out more boolean, out lanes integer[]) language plpgsql as $$
declare
    at_ bigint := hawser.now(given);
    names text[];
    jobs uuid[];
    steps text[];
begin
    with gone as (
        delete from hawser.stirred as s
        where s.ctid = any (array(select x.ctid from hawser.stirred as x limit most for update skip locked)) returning s.event
    )
    select array_agg(distinct g.event) into names from gone as g;
    select array_agg(w.job), array_agg(w.name) into jobs, steps from (
        select s.job, s.name from unnest(names) as n(event)
        cross join lateral (select exists (select from hawser.event as e where e.name = n.event) as came) as e
        cross join lateral (
            select s.job, s.name from hawser.step as s where s.event = n.event and s.kind = 'wait' and (e.came or s.until <= at_) limit most
        ) as s
        union
        select d.job, d.name from (
            select s.job, s.name from hawser.step as s where overdue and s.until <= at_ and s.kind = 'wait' order by s.until limit most
        ) as d
    ) as w;
    more := coalesce(cardinality(names) >= most, false) or coalesce(cardinality(jobs) >= most, false);
    if jobs is null then
        return;
    end if;
    perform from hawser.job as j where j.id = any (jobs) order by j.id for update;

    with over as (
        update hawser.step as s set kind = 'woken' from unnest(jobs, steps) as w(job, name)
        where s.job = w.job and s.name = w.name and s.kind = 'wait' returning s.job
    ), released as (
        update hawser.job as j set run_at = at_, held = null from (select distinct o.job from over as o) as o
        where j.id = any (array[o.job]) and j.held is not null and j.waits is null and not j.running returning j.lane, j.group_name
    ), opened as (
        insert into hawser.arrived (lane, group_name, due_at)
        select distinct r.lane, r.group_name, at_ from released as r where r.group_name is not null
    ), counted as (
        insert into hawser.counted (minute, lane, name, count)
        select case when p.name like '@%' then 0 else at_ / 60000000 end, r.lane, p.name, sum(p.sign)
        from released as r cross join (values ('@held', -1), ('woken', 1)) as p(name, sign) group by 1, 2, 3
    )
    select array_agg(distinct r.lane) into lanes from released as r;
    -- One event may have more to wake than one transaction should.
    insert into hawser.stirred (event) select n.event from unnest(names) as n(event)
    where exists (select from hawser.event as e where e.name = n.event)
        and exists (select from hawser.step as s where s.event = n.event and s.kind = 'wait');
end
$$;

-- What a wait of a run came to, as `stores/waits.py` decides it, recorded under the fence; no row when the lease is not the current one.
create or replace function hawser.come_to(given bigint, run uuid, run_lease bigint, step_ text, event_ text, said bytea)
returns table (now bigint, name text, kind text, value bytea, at bigint, lease bigint, until bigint, event text) language plpgsql as $$
#variable_conflict use_column
declare
    now_ bigint;
    lane_ integer;
    one hawser.step;
    came hawser.event;
    kind_ text;
    value_ bytea;
begin
    select j.lane into lane_ from hawser.job as j where j.id = run and j.lease = run_lease and j.running for no key update;
    if not found then
        return;
    end if;
    now_ := hawser.now(given);
    select s.* into one from hawser.step as s where s.job = run and s.name = step_;
    if one.job is null or one.kind in ('wait', 'woken') then
        if said is not null then
            kind_ := 'gather';
            value_ := said;
        else
            select e.* into came from hawser.event as e where e.name = event_;
            if came.at is not null and (one.until is null or came.at <= one.until) then
                kind_ := 'event';
                value_ := came.body;
            elsif one.until <= now_ then
                kind_ := 'timeout';
                value_ := 'null';
            end if;
        end if;
        if kind_ is null and one.job is null then
            return query select now_, step_, 'wait', 'null'::bytea, now_, run_lease, null::bigint, event_;
            return;
        end if;
        if kind_ is not null then
            insert into hawser.step as s (job, name, kind, value, at, lease, event) values (run, step_, kind_, value_, now_, run_lease, event_)
            on conflict (job, name) do update set kind = excluded.kind, value = excluded.value, at = excluded.at, lease = excluded.lease,
                event = excluded.event returning s.* into one;
            update hawser.job as j set attempt = 1 where j.id = run and j.attempt > 1;
            insert into hawser.counted (minute, lane, name, count)
            select now_ / 60000000, lane_, c.name, 1 from (values ('steps', kind_), ('late', 'timeout'), ('came', 'event')) as c(name, kind)
            where c.kind = kind_;
        end if;
    end if;
    return query select now_, one.name, one.kind, one.value, one.at, one.lease, one.until, one.event;
end
$$;
