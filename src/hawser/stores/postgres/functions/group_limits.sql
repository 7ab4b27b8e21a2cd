-- Limits per group, and the order within one.

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
        select g.lane, g.group_name, g.turn, g.shut, g.due_at, g.idle from hawser.group_turn as g
        where g.lane = l.id and g.group_name = n.name order by g.version desc limit 1
    ) as t where t.turn is null and (t.shut or t.due_at is null) and not t.idle and l.task = task_ and l.grouped and names is not null
    union all
    select t.lane, t.group_name, hawser.now(given), true
    from hawser.lane as l cross join lateral (
        select g.lane, g.group_name from hawser.group_turn as g where g.lane = l.id and g.turn is null and (g.shut or g.due_at is null) and not g.idle
    ) as t where l.task = task_ and l.grouped and names is null
$$;

-- Takes the runs of groups that have ended off their counts, and lets claims look at these groups again; says how many groups that are.
-- Only under the lock of the limit's meter.
create or replace function hawser.fold_groups(given bigint, rule hawser.limited, seen text) returns integer language plpgsql as $$
declare
    names text[];
    runs_ integer[];
begin
    with over as (
        delete from hawser.freed as f where f.ctid = any (array(select n from hawser.ended_runs(rule.id, seen) as n)) returning f.group_name, f.runs
    )
    select array_agg(o.group_name), array_agg(o.runs) into names, runs_
    from (select o.group_name, sum(o.runs)::integer as runs from over as o where o.group_name is not null group by o.group_name) as o;
    if names is null then
        return 0;
    end if;
    update hawser.group_meter as m set running = greatest(m.running - w.runs, 0), changes = m.changes + 1, version = (m.changes + 1) / 16
    from unnest(names, runs_) as w(name, runs) cross join lateral (
        select g.ctid as tid from hawser.group_meter as g where g.limit_id = rule.id and g.group_name = w.name order by g.version desc limit 1
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
    select m.* into one from hawser.group_meter as m where m.limit_id = rule.id and m.group_name = name order by m.version desc limit 1;
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
-- any queue and priority.
create or replace function hawser.first_of_group(
    at bigint, rule hawser.limited, name text, out id uuid, out lane integer, out run_at bigint, out running boolean, out started boolean
) language plpgsql as $$
begin
    select j.id, j.lane, j.run_at, j.running, true into id, lane, run_at, running, started
    from (
        select m.head from hawser.group_meter as m where m.limit_id = rule.id and m.group_name = name order by m.version desc limit 1
    ) as m join hawser.job as j on j.id = any (array[m.head]);
    if id is not null then
        return;
    end if;
    select j.id, j.lane, j.run_at, false, false into id, lane, run_at, running, started
    from hawser.lane as l
    left join lateral (
        select t.begin_at from hawser.group_turn as t where t.lane = l.id and t.group_name = name order by t.version desc limit 1
    ) as t on true
    left join lateral (
        select min(a.due_at) as due_at from hawser.arrived as a where a.ctid = any (array(
            select n from hawser.arrivals(l.id, hawser.known(l.id)) as n)) and a.group_name = name
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
        select t.lane, t.group_name, at, true from (
            select * from hawser.group_turn as t where t.lane = first.lane and t.group_name = name order by t.version desc limit 1
        ) as t where t.turn is null and (t.shut or t.due_at is null) and not t.idle;
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
        select m.* into one from hawser.group_meter as m where m.limit_id = rule.id and m.group_name = names[i] order by m.version desc limit 1;
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
        if one.limit_id is null then
            insert into hawser.group_meter (limit_id, group_name, running, head, slot, slots)
            values (rule.id, names[i], case when rule.running is null then 0 else counts[i] end, case when rule.ordered then heads[i] end,
                kept_slot, one.slots);
        else
            update hawser.group_meter as m set running = m.running + case when rule.running is null then 0 else counts[i] end,
                head = coalesce(case when rule.ordered then heads[i] end, m.head), slot = kept_slot, slots = one.slots,
                changes = m.changes + 1, version = (m.changes + 1) / 16
            where m.limit_id = rule.id and m.group_name = names[i] and m.version = one.version;
        end if;
    end loop;
end
$$;
