-- Functions of the release whose schema was version 13, as its `functions.sql` had them. Not to be changed.

create or replace function hawser.now(given bigint) returns bigint language sql volatile parallel safe as $$
    select coalesce(given, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

create or replace function hawser.moved(slots integer[], last_slot bigint, slot bigint) returns integer[] language sql immutable as $$
    select case
        when last_slot = slot then slots
        when last_slot > slot then array_fill(0, array[16])
        else (
            select array_agg(case when (slot - n) % 16 < slot - last_slot then 0 else slots[n + 1] end order by n)
            from generate_series(0, 15) as n)
    end
$$;

create or replace function hawser.take_limited(
    given bigint, known_version bigint, lanes integer[], kinds smallint[], run_ats bigint[], seqs bigint[], places integer[], worker_ text,
    lease_us bigint, grace_us bigint, good_until bigint, leave_ uuid[], meters_ integer[], epochs bigint[], first integer[], second_ integer[],
    slack_us bigint, most_changes integer
) returns table (
    now bigint, version bigint, mixed boolean, seq bigint, id text, lane integer, attempt integer, max_attempts integer, lease bigint,
    run_at bigint, enqueued_at bigint, crashes integer, returned integer, body bytea, timeout double precision, key text, parent_id text, schedule text, tags text, tick bigint, group_name text
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
                null::bigint, null::bigint, null::bigint, null::integer, null::integer, null::bytea, null::double precision, null::text, null::text, null::text, null::text, null::bigint, null::text;
            return;
        end if;
        held[i] := one;
    end loop;
    now_ := hawser.now(given);
    version_ := (select c.version from hawser.control as c);
    return query select now_, version_, false, null::bigint, null::text, null::integer, null::integer, null::integer,
        null::bigint, null::bigint, null::bigint, null::integer, null::integer, null::bytea, null::double precision, null::text, null::text, null::text, null::text, null::bigint, null::text;
    if version_ <> known_version or now_ >= good_until then
        return;
    end if;
    for i in 1..cardinality(meters_) loop
        one := held[i];
        select l.* into rule from hawser.limited as l where l.id = meters_[i];
        delete from hawser.freed as f where f.meter = meters_[i] and f.at >= one.folded_at - slack_us;
        get diagnostics gone = row_count;
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
                    and j.id <> all (leave_)
                order by j.run_at, j.seq limit room for update skip locked
            ),
            grant_ as materialized (select nextval('hawser.grants') as id where exists (select from head)),
            taken as (
                update hawser.job as j set running = true, attempt = j.attempt + 1, lease = j.lease + 1, worker = worker_, granted = g.id,
                    meters = nullif(counted_by, '{}'), started_at = now_, leased_for = least(lease_us, (j.timeout * 1000000)::bigint + grace_us),
                    lease_until = now_ + least(lease_us, (j.timeout * 1000000)::bigint + grace_us)
                from grant_ as g where j.ctid = any (array(select tid from head))
                returning j.seq, j.id, j.lane, j.kind, j.attempt, j.max_attempts, j.lease, j.run_at, j.enqueued_at, j.crashes, j.returned,
                    j.lease_until, j.body, j.timeout, j.key, j.parent_id, j.schedule, j.tags, j.tick, j.group_name
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
                t.enqueued_at, t.crashes::integer, t.returned::integer, t.body, t.timeout, t.key, t.parent_id::text as parent_id, t.schedule, t.tags, t.tick, t.group_name
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

create or replace function hawser.take_probe(
    probed text, given bigint, known_version bigint, lanes integer[], kinds smallint[], run_ats bigint[], seqs bigint[], places integer[],
    worker_ text, lease_us bigint, grace_us bigint, good_until bigint, leave_ uuid[], meters_ integer[], epochs bigint[], first integer[],
    second_ integer[], slack_us bigint, most_changes integer
) returns table (
    now bigint, version bigint, mixed boolean, seq bigint, id text, lane integer, attempt integer, max_attempts integer, lease bigint,
    run_at bigint, enqueued_at bigint, crashes integer, returned integer, body bytea, timeout double precision, key text, parent_id text, schedule text, tags text, tick bigint, group_name text
) language plpgsql as $$
#variable_conflict use_column
declare
    one record;
begin
    perform from hawser.breaker as b where b.task = probed and b.open and b.probe_at <= hawser.now(given) for update;
    if not found then
        return query select hawser.now(given), known_version, false, null::bigint, null::text, null::integer, null::integer, null::integer,
            null::bigint, null::bigint, null::bigint, null::integer, null::integer, null::bytea, null::double precision, null::text, null::text, null::text, null::text, null::bigint, null::text;
        return;
    end if;
    for one in select * from hawser.take_limited(given, known_version, lanes, kinds, run_ats, seqs, places, worker_, lease_us, grace_us,
        good_until, leave_, meters_, epochs, first, second_, slack_us, most_changes)
    loop
        if one.seq is not null then
            update hawser.breaker as b set probe_at = one.now + b.probe_every, probe_id = one.id::uuid, probe_lease = one.lease
            where b.task = probed;
            update hawser.control as c set version = greatest(c.version + 1, hawser.now(null));
        end if;
        select one.now, one.version, one.mixed, one.seq, one.id, one.lane, one.attempt, one.max_attempts, one.lease, one.run_at,
            one.enqueued_at, one.crashes, one.returned, one.body, one.timeout, one.key, one.parent_id, one.schedule, one.tags, one.tick, one.group_name
        into now, version, mixed, seq, id, lane, attempt, max_attempts, lease, run_at, enqueued_at, crashes, returned, body, timeout, key, parent_id, schedule, tags, tick, group_name;
        return next;
    end loop;
end
$$;
