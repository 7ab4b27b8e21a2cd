-- Batches: who joins, and what they count.

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

-- A batch and what waits for it, directly or over others: who waits for a job or a batch, what counts either, and the batch of a job. No more
-- than `most`.
create or replace function hawser.behind(batch uuid, most integer) returns setof uuid language sql set enable_seqscan = off as $$
    with recursive behind (id) as (
        select behind.batch
        union select n.id from behind as b cross join lateral (
            select d.waiter as id from hawser.dependency as d where d.job = any (array[b.id])
            union all select j.batch from hawser.job as j where j.id = any (array[b.id]) and j.batch is not null
        ) as n
    )
    select b.id from behind as b limit most
$$;

-- Those of these that may wait for others: held jobs, and batches. If there are any, who asks is alone until its transaction ends: of two that
-- each add half of a circle, the second sees what the first has written. Under another isolation than read committed it would not.
create or replace function hawser.may_wait(ids uuid[], patience integer) returns setof uuid language plpgsql set enable_seqscan = off as $$
declare
    found_ uuid[] := array(
        select w.id from unnest(ids) as w(id)
        where exists (select from hawser.job as j where j.id = w.id and j.held is not null)
            or exists (select from hawser.batch as b where b.id = w.id)
    );
begin
    if found_ <> '{}' then
        if current_setting('transaction_isolation') <> 'read committed' then
            raise exception 'a member that waits is added under read committed only' using errcode = 'HW004',
                detail = current_setting('transaction_isolation');
        end if;
        if patience is not null then
            perform set_config('lock_timeout', patience::text, true);
        end if;
        perform pg_advisory_xact_lock(hashtext('hawser.circles'));
    end if;
    return query select unnest(found_);
end
$$;

-- Refuses new members of batches that wait for what in turn waits for their batch, in the transaction that has added them.
create or replace function hawser.check_circles(of_ uuid[], upstream uuid[], most integer, patience integer) returns void language plpgsql as $$
declare
    held uuid[] := array(select hawser.may_wait(upstream, patience));
    one uuid;
    found_ uuid[];
    hit uuid;
begin
    for one in select w.batch from unnest(of_, upstream) with ordinality as w(batch, job, n) where w.job = any (held) group by 1 order by min(w.n) loop
        found_ := array(select hawser.behind(one, most + 1));
        select w.job into hit from unnest(of_, upstream) with ordinality as w(batch, job, n)
        where w.batch = one and w.job = any (held) and w.job = any (found_) order by w.n limit 1;
        if hit is not null or cardinality(found_) > most then
            raise exception 'a member would wait in a circle' using errcode = 'HW007',
                detail = jsonb_build_object('batch', one, 'id', hit)::text;
        end if;
    end loop;
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
