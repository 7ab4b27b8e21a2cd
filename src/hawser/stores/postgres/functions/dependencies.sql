-- Jobs that wait for others.

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
-- finds no more, each time in a transaction of its own, so that no two wait for each other. One that died before it was done left the ends here.
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
