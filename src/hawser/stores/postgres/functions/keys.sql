-- Who wants a key, and who holds it.

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
            or k.until is not null and exists (select from hawser.job as j where j.id = any (array[k.job_id]) and j.lane = k.lane and j.key = w.key);
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
                    or h.until <= at and not exists (
                        select from hawser.job as j where j.id = any (array[h.job_id]) and j.lane = h.lane and j.key = h.key
                    ))
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
