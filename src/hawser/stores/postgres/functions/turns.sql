-- Claims by turns of groups.

-- Claims jobs with groups of one queue and priority. The answer has the time, the version of the lane catalog, the places
-- that are the turn of the jobs without a group, of which `ungrouped_due` are due, the order of the jobs, and the lowest turn of each lane, where the next
-- claim may begin to read: turns only rise. The others have the jobs. `rooms` has how many may be taken of each lane; null: any number.
-- Claims on the groups of a queue wait for each other: so turns are exact with any number of claimers. Each takes milliseconds and
-- waits for nothing else but meters of limits, as in `take_limited_jobs`; `ungrouped` is -1 when one of those was not where it was looked for.
-- It is -2, and nothing is taken, when a job without a group is due in one of the sources `plain_lanes`.
-- The lock comes first: what is read behind it is what the claim before has left. `own` has for each lane the place of the limit per group
-- of its task among the meters, or null.
create or replace function hawser.serve_turns(
    given bigint, expected bigint, good_until bigint, queue_ text, priority_ smallint, lanes integer[], rooms integer[], from_turns bigint[],
    places integer, ungrouped_due integer, worker_ text, lease_us bigint, grace bigint, without uuid[],
    meters_ integer[], epochs bigint[], first integer[], second_ integer[], own integer[], slack_us bigint, most_changes integer,
    plain_lanes integer[], plain_kinds smallint[], plain_run_ats bigint[], plain_seqs bigint[],
    out now bigint, out version bigint, out ungrouped integer, out first_turns bigint[], out seqs bigint[], out ids uuid[], out leases bigint[]
) language plpgsql as $$
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
    first_lanes integer[];
    seen_ text;
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
    round_ record;
begin
    perform pg_advisory_xact_lock(hashtext('hawser.turns'), hashtext(queue_));
    clock := hawser.now(null);
    for i in 1..cardinality(meters_) loop
        select m.* into one from hawser.meter as m where m.id = meters_[i] and m.epoch >= epochs[i] order by m.epoch desc limit 1 for update;
        if not found then
            now := hawser.now(given);
            version := expected;
            ungrouped := -1;
            return;
        end if;
        held[i] := one;
    end loop;
    now := hawser.now(given);
    select c.version into version from hawser.control as c;
    if version <> expected or now >= good_until then
        return;
    end if;
    -- The claimer has not looked whether jobs without a group are due.
    if plain_lanes <> '{}' and exists (
        select from unnest(plain_lanes, plain_kinds, plain_run_ats, plain_seqs) as s(lane, kind, run_at, seq) cross join lateral (
            select from hawser.job as j
            where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= now and not j.running
                and (j.expires_at > now) is not false and j.id <> all (without)
            order by j.run_at, j.seq limit 1
        ) as h
    ) then
        ungrouped := -2;
        return;
    end if;
    -- What this snapshot sees is deleted below, and no claim has to look for it again.
    seen_ := pg_current_snapshot()::text;
    for i in 1..cardinality(meters_) loop
        one := held[i];
        select l.* into rule from hawser.limited as l where l.id = meters_[i];
        rules[i] := rule;
        if rule.per_group then
            freed_[i] := hawser.fold_groups(given, rule, one.seen);
            started[i] := 0;
            caps[i] := rule.running is not null;
            rates[i] := false;
            lefts[i] := 2147483647;
            continue;
        end if;
        with over as (
            delete from hawser.freed as f where f.ctid = any (array(select n from hawser.ended_runs(meters_[i], one.seen) as n)) returning f.runs
        )
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
    ids := '{}';
    leases := '{}';
    -- No limit has a say in what is taken: each round is a few statements, as long as nobody else has one of the jobs.
    while left_ > 0 and meters_ = '{}' and without = '{}' and array_remove(rooms, null) = '{}' loop
        select * into round_ from hawser.take_round(now, lanes, from_turns, queue_, priority_, left_, ungrouped_due - plain, worker_, lease_us, grace);
        exit when round_.taken is null or round_.visited = 0 and round_.plain = 0;
        left_ := left_ - round_.taken - round_.plain;
        plain := plain + round_.plain;
        if round_.taken > 0 then
            seqs := seqs || round_.seqs;
            ids := ids || round_.ids;
            leases := leases || round_.leases;
        end if;
    end loop;
    loop
        exit when left_ = 0;
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
                select r.name, min(r.turn) as turn, max(r.served) as served, null::tid as row_
                from unnest(lanes, rooms, from_turns) as l(lane, room, from_turn) cross join lateral (
                    select t.group_name as name, t.turn, t.served from hawser.group_turn as t
                    where t.lane = l.lane and t.turn >= l.from_turn and t.group_name <> all (skipped)
                    order by t.turn limit left_ + cardinality(without)
                ) as r where l.room is distinct from 0 group by r.name
                union all
                select '', coalesce(u.turn, 0), coalesce(u.served, 0), u.tid from (select) as one left join lateral (
                    select u.turn, u.served, u.ctid as tid from hawser.ungrouped_turn as u where u.queue = queue_ and u.priority = priority_
                    order by u.version desc limit 1
                ) as u on true where ungrouped_due > plain
            )
            select o.name, o.turn, o.served, o.row_, w.weight, greatest(1, fits / sum(w.weight) over ()) as rounds
            from open_ as o cross join lateral (
                select coalesce((select w.weight from hawser.weight as w where w.queue = queue_ and w.group_name = o.name), 1) as weight
            ) as w order by o.turn limit left_ + cardinality(without)
        loop
            exit when left_ = 0;
            offered := least(g.weight * g.rounds - g.served % g.weight, left_);
            if g.name = '' then
                offered := least(offered, ungrouped_due - plain);
                plain := plain + offered;
                update hawser.ungrouped_turn as u set turn = nextval('hawser.turns'), served = g.served + offered, changes = u.changes + 1,
                    version = (u.changes + 1) / 16
                where u.ctid = g.row_;
                if not found then
                    insert into hawser.ungrouped_turn (queue, priority, turn, served) values (queue_, priority_, nextval('hawser.turns'), offered);
                end if;
                left_ := left_ - offered;
                continue;
            end if;
            group_rooms := rooms;
            firsts := '{}';
            first_lanes := '{}';
            for i in 1..cardinality(lanes) loop
                continue when own[i] is null or rooms[i] = 0;
                group_rooms[i] := least(rooms[i], (select r.places from hawser.group_room(now, rules[own[i]], g.name) as r));
                if rules[own[i]].ordered and group_rooms[i] > 0 then
                    select * into first_job from hawser.first_of_group(now, rules[own[i]], g.name);
                    if not first_job.running and first_job.lane = lanes[i] and first_job.run_at <= now and first_job.id <> all (without) then
                        firsts := firsts || first_job.id;
                        first_lanes := first_lanes || lanes[i];
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
                        started_heads := started_heads || firsts[array_position(first_lanes, lane_)];
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
            select ids || array_agg(s.id), leases || array_agg(s.lease) into ids, leases
            from hawser.start_grouped(now, all_tids, worker_, lease_us, grace, caps_of) as s;
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
    ungrouped := plain;
    -- Where no group has a turn, the next one that is drawn is the lowest.
    select array_agg(coalesce(t.turn, greatest(l.from_turn, (select s.last_value from hawser.turns as s))) order by l.n) into first_turns
    from unnest(lanes, from_turns) with ordinality as l(lane, from_turn, n) left join lateral (
        select t.turn from hawser.group_turn as t where t.lane = l.lane and t.turn >= l.from_turn order by t.turn limit 1
    ) as t on true;
end
$$;

-- As `serve_turns`, for the probe of a task and for workers of an older release: a row for each job, and a last one with what holds for all.
create or replace function hawser.take_turns(
    given bigint, expected bigint, good_until bigint, queue_ text, priority_ smallint, lanes integer[], rooms integer[], from_turns bigint[],
    places integer, ungrouped_due integer, worker_ text, lease_us bigint, grace bigint, without uuid[],
    meters_ integer[], epochs bigint[], first integer[], second_ integer[], own integer[], slack_us bigint, most_changes integer
) returns table (now bigint, version bigint, ungrouped integer, first_turns bigint[], seqs bigint[], id uuid, lease bigint) language sql as $$
    with served as materialized (
        select * from hawser.serve_turns(given, expected, good_until, queue_, priority_, lanes, rooms, from_turns, places, ungrouped_due,
            worker_, lease_us, grace, without, meters_, epochs, first, second_, own, slack_us, most_changes, '{}', '{}', '{}', '{}')
    )
    select s.now, s.version, null::integer, null::bigint[], null::bigint[], j.id, j.lease
    from served as s cross join unnest(s.ids, s.leases) as j(id, lease)
    union all
    select s.now, s.version, s.ungrouped, s.first_turns, s.seqs, null, null from served as s
$$;
