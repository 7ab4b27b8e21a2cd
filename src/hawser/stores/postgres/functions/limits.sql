-- Claims under the limits of queues and tasks.

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

-- What was told of runs of a limit that have ended and is not added up: of transactions that were not over in the snapshot `seen`, which stands in
-- the limit's meter. All else is gone, but may have to be stepped over. Null: all that is there.
create or replace function hawser.ended_runs(meter_ integer, seen text) returns setof tid language plpgsql stable as $$
declare
    from_ xid8 := coalesce(pg_snapshot_xmax(seen::pg_snapshot), '0'::xid8);
    other xid8;
begin
    return query select f.ctid from hawser.freed as f where f.meter = meter_ and f.xid >= from_;
    for other in select x from pg_snapshot_xip(seen::pg_snapshot) as x loop
        return query select f.ctid from hawser.freed as f where f.meter = meter_ and f.xid = other;
    end loop;
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
    seen_ text;
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
    -- What this snapshot sees is deleted below, and no claim has to look for it again.
    seen_ := pg_current_snapshot()::text;
    for i in 1..cardinality(meters_) loop
        one := held[i];
        select l.* into rule from hawser.limited as l where l.id = meters_[i];
        with over as (
            delete from hawser.freed as f where f.ctid = any (array(select n from hawser.ended_runs(meters_[i], one.seen) as n)) returning f.runs
        )
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
                update hawser.meter as m set running = one.running, slot = one.slot, slots = one.slots, folded_at = clock, seen = seen_,
                    changes = one.changes + 1
                where m.id = one.id and m.epoch = one.epoch;
            else
                delete from hawser.meter as m where m.id = one.id and m.epoch = one.epoch;
                insert into hawser.meter (id, epoch, running, slot, slots, folded_at, seen)
                values (one.id, one.epoch + 1, one.running, one.slot, one.slots, clock, seen_);
            end if;
        end if;
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
        update hawser.meter as m set changes = m.changes + 1, seen = null, running = (
            select count(*) from hawser.granted as g cross join lateral unnest(g.jobs) as w(id) join hawser.job as j on j.id = any (array[w.id])
            where j.running and j.granted = g.id and limit_ = any (j.meters)
        ) where m.id = one.id and m.epoch = one.epoch;
        return;
    end if;
    update hawser.meter as m set seen = null where m.id = one.id and m.epoch = one.epoch and m.seen is not null;
    with gone as (delete from hawser.freed as f where f.meter = limit_ returning f.group_name),
    counted as materialized (
        select j.group_name, count(*)::integer as runs
        from hawser.granted as g cross join lateral unnest(g.jobs) as w(id) join hawser.job as j on j.id = any (array[w.id])
        where j.running and j.granted = g.id and limit_ = any (j.meters) and j.group_name is not null group by j.group_name
    ),
    more as (
        insert into hawser.group_meter as m (limit_id, group_name, running) select limit_, c.group_name, c.runs from counted as c
        where not exists (select from hawser.group_meter as m where m.limit_id = limit_ and m.group_name = c.group_name)
        returning m.group_name
    ),
    others as (
        update hawser.group_meter as m set running = c.runs, changes = m.changes + 1, version = (m.changes + 1) / 16
        from counted as c where m.limit_id = limit_ and m.group_name = c.group_name and m.running <> c.runs returning m.group_name
    ),
    none as (
        update hawser.group_meter as m set running = 0, changes = m.changes + 1, version = (m.changes + 1) / 16
        where m.limit_id = limit_ and m.running > 0 and not exists (select from counted as c where c.group_name = m.group_name)
        returning m.group_name
    )
    select array_agg(n.group_name) into names from (
        select g.group_name from gone as g where g.group_name is not null
        union select m.group_name from more as m union select o.group_name from others as o union select n.group_name from none as n
    ) as n;
    if names is not null then
        perform hawser.reopen_groups(null, rule.name, names);
    end if;
end
$$;
