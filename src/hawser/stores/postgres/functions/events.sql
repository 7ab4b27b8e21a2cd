-- Events, and the waits of handlers.

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
            -- Of no lane: an event is nobody's.
            insert into hawser.counted (minute, lane, name, count) values (now_ / 60000000, 0, 'emitted', 1);
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

-- Holds jobs that have just left running in this transaction. The rows of their events are not looked at, so that no emitter is waited for: the
-- names are appended, and who takes one away sees the event as well as the wait, whichever was committed first. The time of a wait that
-- lasts already goes on. No job may stand here twice.
create or replace function hawser.hold_runs(
    given bigint, far bigint, runs uuid[], leases bigint[], steps text[], said bytea[], lasts bigint[], events text[]
) returns void language plpgsql as $$
declare
    at bigint := hawser.now(given);
begin
    insert into hawser.step as s (job, name, kind, value, at, lease, until, event)
    select w.run, w.step, 'wait', w.said, at, w.lease, at + w.lasts, w.event
    from unnest(runs, leases, steps, said, lasts, events) as w(run, lease, step, said, lasts, event) order by w.run
    on conflict (job, name) do update set kind = 'wait', value = excluded.value, event = excluded.event where s.kind in ('wait', 'woken');
    with held as (
        update hawser.job as j set held = 0, waits = null, run_at = far from unnest(runs, events) as w(run, event)
        where j.id = any (array[w.run]) and w.event is not null returning j.lane
    )
    insert into hawser.counted (minute, lane, name, count) select 0, h.lane, '@held', count(*) from held as h group by h.lane;
    insert into hawser.stirred (event) select distinct w.event from unnest(events) as w(event) where w.event is not null;
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
    end_ bigint;
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
            end_ := now_;
        else
            select e.* into came from hawser.event as e where e.name = event_;
            if came.at is not null and (one.until is null or came.at <= one.until) then
                kind_ := 'event';
                value_ := came.body;
                end_ := came.at;
            elsif one.until <= now_ then
                kind_ := 'timeout';
                value_ := 'null';
                end_ := one.until;
            end if;
        end if;
        if kind_ is null and one.job is null then
            return query select now_, step_, 'wait', 'null'::bytea, now_, run_lease, null::bigint, event_;
            return;
        end if;
        if kind_ is not null then
            insert into hawser.step as s (job, name, kind, value, at, lease, until, event)
            values (run, step_, kind_, value_, now_, run_lease, greatest(coalesce(one.at, now_), end_), event_)
            on conflict (job, name) do update set kind = excluded.kind, value = excluded.value, lease = excluded.lease,
                until = excluded.until, event = excluded.event returning s.* into one;
            update hawser.job as j set attempt = 1 where j.id = run and j.attempt > 1;
            insert into hawser.counted (minute, lane, name, count)
            select now_ / 60000000, lane_, c.name, 1 from (values ('steps', kind_), ('late', 'timeout'), ('came', 'event')) as c(name, kind)
            where c.kind = kind_;
        end if;
    end if;
    return query select now_, one.name, one.kind, one.value, one.at, one.lease, one.until, one.event;
end
$$;
