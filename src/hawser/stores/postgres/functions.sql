-- revision: 2
-- The functions of the database. `migrate` makes or replaces them when it finds others: a changed function is no migration. Raise the
-- revision with every change: a database that a newer Hawser has changed keeps the newer functions.
-- Workers of the release before call these functions meanwhile, by name and types of arguments. A function with other arguments is
-- another function to PostgreSQL, and the old one stays. `create or replace` cannot rename an argument.
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

-- The keys that these jobs want: those whose place does not stand in `stands`, nor their id in `over`.
create or replace function hawser.wanted(
    at bigint, ids uuid[], lanes integer[], keys text[], ttls double precision[], stands jsonb, over jsonb
) returns table (place bigint, id uuid, lane integer, queue text, task text, key text, until bigint) language sql stable as $$
    select w.n, w.id, w.lane, l.queue, l.task, w.key,
        case when w.ttl is null or w.ttl in (0, 'infinity') then null else at + (w.ttl * 1000000)::bigint end
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
        ) as k where k.until is null or k.until > at or exists (select from hawser.job as j where j.id = k.job_id and j.lane = k.lane and j.key = w.key);
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
                where h.queue = w.queue and h.task = w.task and h.key = w.key and h.until <= at
                    and not exists (select from hawser.job as j where j.id = h.job_id and j.lane = h.lane and j.key = h.key)
                for update of h
            ) as k
        ), held as (
            update hawser.held_key as k set job_id = f.id, lane = f.lane, until = f.until, outlived = false from free as f
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
            case when d.run_at > at or w.schedule is not null then 2 when w.run_at is not null or late then 1 else 0 end,
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
