-- The parts of a turn: groups that open and close, and what is due in one.

-- Gives every group a turn, also one that is not known to be due. Under the locks of `take_turns`, of all queues: a claim that draws a higher
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
    update hawser.arrived as a set due_at = 0, xid = pg_current_xact_id() from hawser.lane as l where l.id = a.lane and l.queue = any (queues);
    update hawser.group_turn as t set turn = coalesce(t.turn, nextval('hawser.turns')), due_at = null, begin_at = 0, begin_seq = 0, waited = true,
        shut = false, idle = false, version = t.version + 1
    from hawser.lane as l where l.id = t.lane and l.queue = any (queues);
end
$$;

-- The name of a setting of this session that has what it knows of a lane: a snapshot, of which all arrivals that were seen in it are gone; the
-- transaction that was under way then, which is not in it; the time up to which groups that had to wait for it have turns; and when a claim read
-- all. Another server knows nothing of it, so it is asked for all. It is set back with the transaction.
create or replace function hawser.known_of_lane(lane_ integer) returns text language sql stable as $$
    select 'hawser_known.s' || 'hawser.lane'::regclass::oid || '_' || lane_
$$;

-- The arrivals of a lane that have not been added to its groups. Those of transactions that were over in the snapshot that is known are gone.
-- One statement for each other transaction: a join might be planned as a look at all arrivals of the lane.
create or replace function hawser.arrivals(lane_ integer, known text[]) returns setof tid language plpgsql stable as $$
declare
    seen pg_snapshot := known[1];
    from_ xid8 := coalesce(pg_snapshot_xmax(seen), '0'::xid8);
    other xid8;
begin
    return query select a.ctid from hawser.arrived as a where a.lane = lane_ and a.xid >= from_;
    for other in select x from pg_snapshot_xip(seen) as x union all select known[2]::xid8 where known[2]::xid8 < from_ loop
        return query select a.ctid from hawser.arrived as a where a.lane = lane_ and a.xid = other;
    end loop;
end
$$;

-- What is known of a lane; null if nothing is.
create or replace function hawser.known(lane_ integer) returns text[] language sql stable as $$
    select string_to_array(nullif(current_setting(hawser.known_of_lane(lane_), true), ''), ' ')
$$;

-- Whether jobs have come to groups of these lanes that no claim has seen yet.
create or replace function hawser.have_arrivals(lanes integer[]) returns boolean language plpgsql as $$
declare
    found_ boolean;
    snapshot text;
begin
    select exists (select from unnest(lanes) as l(lane) cross join lateral hawser.arrivals(l.lane, hawser.known(l.lane)) as n),
        pg_current_snapshot()::text into found_, snapshot;
    if not found_ then
        perform set_config(hawser.known_of_lane(l.lane), array_to_string(array[snapshot, '0'] || coalesce(k.known[3:4], '{0,0}'), ' '), false)
        from unnest(lanes) as l(lane) cross join lateral (select hawser.known(l.lane) as known) as k;
    end if;
    return found_;
end
$$;

-- Gives turns to groups that jobs have come to, and to those whose next job has become due. Groups that are shut stay so, unless a job of
-- them has left, or their time has come. Only under the lock of `take_turns`. A row of a group is found by its newest version, and arrivals
-- and times behind what the last claim of this session has seen: while an old snapshot is held, all that is gone has to be stepped over.
create or replace function hawser.open_groups(at bigint, lanes integer[]) returns void language plpgsql as $$
declare
    come record;
    known text[];
    due integer;
begin
    with come as (
        delete from hawser.arrived as a where a.ctid = any (array(
            select n from unnest(lanes) as l(lane) cross join lateral hawser.arrivals(l.lane, hawser.known(l.lane)) as n))
        returning a.lane, a.group_name, a.due_at, a.seq, a.reopens, a.waited
    )
    select pg_current_snapshot()::text as snapshot,
        array_agg(c.lane order by c.seq) filter (where not c.reopens) as lanes,
        array_agg(c.group_name order by c.seq) filter (where not c.reopens) as names,
        array_agg(c.due_at order by c.seq) filter (where not c.reopens) as dues,
        array_agg(c.waited order by c.seq) filter (where not c.reopens) as waited,
        array_agg(c.lane order by c.seq) filter (where c.reopens) as shut_lanes,
        array_agg(c.group_name order by c.seq) filter (where c.reopens) as shut_names
    into come from come as c;

    if come.lanes is not null then
        -- Most have a turn already, and nothing is written.
        with come_ as materialized (
            select f.lane, f.group_name, f.due_at, f.waited or t.waited is true as waited, t.tid, t.begin_at, t.begin_seq, t.shut,
                case when f.due_at <= at and t.turn is null and t.shut is not true then nextval('hawser.turns') end as turn
            from (
                select c.lane, c.group_name, min(c.due_at) as due_at, bool_or(c.waited) as waited
                from unnest(come.lanes, come.names, come.dues, come.waited) with ordinality as c(lane, group_name, due_at, waited, n)
                group by c.lane, c.group_name order by min(c.n)
            ) as f left join lateral (
                select g.ctid as tid, g.turn, g.shut, case when not g.idle then g.begin_at end as begin_at, g.begin_seq,
                    g.waited and not g.idle as waited
                from hawser.group_turn as g where g.lane = f.lane and g.group_name = f.group_name order by g.version desc limit 1
            ) as t on true
            where t.tid is null or t.begin_at is null or (t.begin_at, t.begin_seq) > (f.due_at, 0) or not t.shut and t.turn is null
                or f.waited and not t.waited
        ),
        added as (
            insert into hawser.group_turn (lane, group_name, turn, due_at, begin_at, waited)
            select c.lane, c.group_name, c.turn, case when c.turn is null then c.due_at end, c.due_at, c.waited from come_ as c where c.tid is null
        )
        update hawser.group_turn as t set turn = coalesce(t.turn, c.turn),
            due_at = case when t.shut then t.due_at when t.turn is null and c.turn is null then least(t.due_at, c.due_at) end,
            begin_at = least(c.begin_at, c.due_at), begin_seq = case when c.begin_at < c.due_at then c.begin_seq else 0 end,
            waited = c.waited, idle = false, version = t.version + 1
        from come_ as c where t.ctid = c.tid;
    end if;
    if come.shut_lanes is not null then
        update hawser.group_turn as t set turn = nextval('hawser.turns'), due_at = null, shut = false, version = t.version + 1
        from (select distinct c.lane, c.group_name from unnest(come.shut_lanes, come.shut_names) as c(lane, group_name)) as c cross join lateral (
            select g.ctid as tid, g.turn, g.shut, g.due_at, g.idle from hawser.group_turn as g
            where g.lane = c.lane and g.group_name = c.group_name order by g.version desc limit 1
        ) as g where t.ctid = g.tid and g.turn is null and (g.shut or g.due_at is null) and not g.idle;
    end if;

    for i in 1..cardinality(lanes) loop
        known := coalesce(hawser.known(lanes[i]), '{NULL,0,0,0}'::text[]);
        -- Once in 30 seconds all is read, and after the clock was set back.
        if at - known[4]::bigint not between 0 and 30000000 or known[3]::bigint > at then
            known[3] := '0';
            known[4] := at::text;
        end if;
        update hawser.group_turn as t set turn = nextval('hawser.turns'), due_at = null, shut = false, version = t.version + 1 from (
            select g.ctid as tid from hawser.group_turn as g
            where g.lane = lanes[i] and g.due_at is not null and g.due_at > known[3]::bigint - 1000000 and g.due_at <= at order by g.due_at limit 1000
        ) as d where t.ctid = d.tid;
        get diagnostics due = row_count;
        perform set_config(hawser.known_of_lane(lanes[i]), concat_ws(' ', come.snapshot, coalesce(pg_current_xact_id_if_assigned(), '0'),
            case when due < 1000 then at::text else known[3] end, known[4]), false);
    end loop;
end
$$;

-- Forgets groups of a queue that have had nothing waiting since a time. Gives how many.
create or replace function hawser.forget_idle_groups(given bigint, queue_ text, idle_for bigint, most integer) returns integer language plpgsql as $$
declare
    gone integer;
begin
    perform pg_advisory_xact_lock(hashtext('hawser.turns'), hashtext(queue_));
    delete from hawser.group_turn as t where t.ctid = any (array(
        select g.ctid from hawser.lane as l cross join lateral (
            select g.ctid from hawser.group_turn as g where g.lane = l.id and g.idle and g.begin_at < hawser.now(given) - idle_for
            order by g.begin_at limit most
        ) as g where l.queue = queue_ and l.grouped limit most
    ));
    get diagnostics gone = row_count;
    return gone;
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
                    select t.begin_at from hawser.group_turn as t where t.lane = l.lane and t.group_name = name
                    order by t.version desc limit 1
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

-- After a claim has served groups: their next turns, or the time of their next job. A group that has nothing waiting is idle.
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
            select g.ctid, g.begin_at, g.idle from hawser.group_turn as g where g.lane = l.lane and g.group_name = w.name
            order by g.version desc limit 1
        ) as t
        cross join lateral (
            select min(h.run_at) as due_at from (values (4), (5), (6), (7)) as k(kind) cross join lateral (
                select j.run_at from hawser.job as j
                where j.lane = l.lane and j.group_name = w.name and j.kind = k.kind and j.run_at >= t.begin_at and not j.running
                    and (j.expires_at > at) is not false
                order by j.run_at, j.seq limit 1
            ) as h
        ) as d
        left join lateral hawser.place_of_group(at, l.lane, l.limit_, w.name, d.due_at) as p on d.due_at is not null
        where not t.idle or d.due_at is not null
    )
    update hawser.group_turn as t set turn = case when p.has_turn then p.turn end, due_at = case when not p.has_turn then p.due_at end,
        shut = p.shut, begin_at = coalesce(p.next_due, at), begin_seq = 0, idle = p.next_due is null, version = t.version + 1,
        served = case when p.next_due is null then 0 else p.served end
    from place as p where t.ctid = p.tid;
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
    select t.turn into own from hawser.group_turn as t where t.lane = j.lane and t.group_name = j.group_name order by t.version desc limit 1;
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
        select * into one from hawser.group_meter as m where m.limit_id = rule.id and m.group_name = j.group_name
        order by m.version desc limit 1;
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
