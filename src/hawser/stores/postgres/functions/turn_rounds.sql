-- A round of turns in a few statements, whatever the number of groups.

-- Serves the groups whose turn it is with so many places, as the loop in `serve_turns` does one by one: where no limit has a say in it and no
-- job is left to others. `plain`: places that are the turn of the jobs without a group, of which `ungrouped_due` are due; `visited`: rows of
-- groups that were looked at. The jobs are read first and locked then: when another transaction has one of them, nothing is
-- written, and `taken` is null.
-- One row per group and lane goes through the whole statement: a join of two of its parts would compare all with all.
create or replace function hawser.take_round(
    at bigint, lanes integer[], from_turns bigint[], queue_ text, priority_ smallint, places integer, ungrouped_due integer, worker_ text,
    lease_us bigint, grace bigint, out taken integer, out plain integer, out visited integer, out seqs bigint[], out ids uuid[], out leases bigint[]
) language plpgsql as $$
declare
    weighted constant boolean := exists (select from hawser.weight as w where w.queue = queue_);
    plain_row tid;
    plain_served bigint;
    tids tid[];
    rows_ tid[];
    turns bigint[];
    dues bigint[];
    begins bigint[];
    begin_seqs bigint[];
    served_ bigint[];
    locked integer;
begin
    if cardinality(lanes) = 1 then
        with open_ as (
            (select t.group_name as name, t.turn, t.served, t.ctid as tid, t.begin_at, t.begin_seq, t.waited from hawser.group_turn as t
                where t.lane = lanes[1] and t.turn >= from_turns[1] order by t.turn limit places)
            union all
            select '', coalesce(u.turn, 0), coalesce(u.served, 0), u.tid, null, null, null from (select) as one left join lateral (
                select u.turn, u.served, u.ctid as tid from hawser.ungrouped_turn as u where u.queue = queue_ and u.priority = priority_
                order by u.version desc limit 1
            ) as u on true where ungrouped_due > 0
        ),
        offers as (
            select w.*, least(w.weight * greatest(1, places / sum(w.weight) over ()) - w.served % w.weight,
                case when w.name = '' then ungrouped_due end)::integer as offer
            from (
                select o.*, case when weighted then
                    coalesce((select w.weight from hawser.weight as w where w.queue = queue_ and w.group_name = o.name), 1) else 1 end as weight
                from open_ as o
            ) as w
        ),
        served as materialized (
            select c.*, least(c.offer, places - c.before)::integer as offered from (
                select f.*, row_number() over (order by f.turn) as n,
                    coalesce(sum(f.offer) over (order by f.turn rows between unbounded preceding and 1 preceding), 0) as before
                from offers as f
            ) as c where c.before < places
        ),
        found_ as materialized (
            select s.n, s.name, s.turn, s.served, s.weight, s.tid, s.waited, h.tids, h.seqs, h.next_at, h.next_seq
            from served as s cross join lateral (
                select (array_agg(j.tid))[1:s.offered] as tids, (array_agg(j.seq))[1:s.offered] as seqs,
                    case when count(*) > s.offered then max(j.run_at) end as next_at, (array_agg(j.seq))[s.offered + 1] as next_seq
                from (
                    select j.ctid as tid, j.run_at, j.seq from hawser.job as j
                    where j.lane = lanes[1] and j.group_name = s.name and j.kind = 4 and (j.run_at, j.seq) >= (s.begin_at, s.begin_seq)
                        and j.run_at <= at and not j.running and (j.expires_at > at) is not false
                    order by j.run_at, j.seq limit s.offered + 1
                ) as j having not s.waited
                union all
                select array_agg(r.tid order by r.run_at, r.seq) filter (where r.chosen),
                    array_agg(r.seq order by r.run_at, r.seq) filter (where r.chosen),
                    (min(array[r.run_at, r.seq]) filter (where not r.chosen))[1], (min(array[r.run_at, r.seq]) filter (where not r.chosen))[2]
                from (
                    select p.*, row_number() over (order by p.reserved desc, p.run_at, p.seq) <= s.offered as chosen from (
                        select l.*, l.late and row_number() over (partition by l.late order by l.run_at, l.seq) <= (s.offered + s.served % 2) / 2 as reserved
                        from (
                            select j.tid, j.run_at, j.seq, k.kind > 5 and j.run_at <= at - 500000 as late
                            from (values (4), (5), (6), (7)) as k(kind) cross join lateral (
                                select j.ctid as tid, j.run_at, j.seq from hawser.job as j
                                where j.lane = lanes[1] and j.group_name = s.name and j.kind = k.kind and (j.run_at, j.seq) >= (s.begin_at, s.begin_seq)
                                    and j.run_at <= at and not j.running and (j.expires_at > at) is not false
                                order by j.run_at, j.seq limit s.offered + 1
                            ) as j
                        ) as l
                    ) as p
                ) as r having s.waited
            ) as h where s.name <> ''
        ),
        next_ as (
            select f.n, f.tid, f.turn, f.served + coalesce(cardinality(f.tids), 0) as served, coalesce(cardinality(f.tids), 0) as got, f.weight,
                f.next_at is not null as has_turn, coalesce(f.next_seq, 0) as next_seq, coalesce(f.next_at, (
                    select min(h.run_at) from (values (4), (5), (6), (7)) as k(kind) cross join lateral (
                        select j.run_at from hawser.job as j
                        where (f.waited or k.kind = 4) and j.lane = lanes[1] and j.group_name = f.name and j.kind = k.kind and j.run_at > at
                            and not j.running and (j.expires_at > at) is not false
                        order by j.run_at, j.seq limit 1
                    ) as h
                )) as next_due
            from found_ as f order by f.n
        ),
        stood as (
            select n.tid, case when n.has_turn then
                    case when n.served % n.weight = 0 or n.got >= n.weight then nextval('hawser.turns') else n.turn end
                end as turn,
                case when not n.has_turn then n.next_due end as due_at, n.next_due, n.next_seq, n.served
            from next_ as n
        )
        select s.*, j.*, coalesce(u.offered, 0), u.served, u.tid into rows_, turns, dues, begins, begin_seqs, served_, tids, seqs, plain, plain_served, plain_row
        from (
            select array_agg(s.tid), array_agg(s.turn), array_agg(s.due_at), array_agg(s.next_due), array_agg(s.next_seq), array_agg(s.served) from stood as s
        ) as s cross join (
            select array_agg(j.tid), array_agg(j.seq) from (select f.tids, f.seqs from found_ as f order by f.n) as f cross join unnest(f.tids, f.seqs) as j(tid, seq)
        ) as j left join served as u on u.name = '';
    else
        with open_ as materialized (
            select r.name, min(r.turn) as turn, max(r.served) as served, null::tid as tid
            from unnest(lanes, from_turns) as l(lane, from_turn) cross join lateral (
                select t.group_name as name, t.turn, t.served from hawser.group_turn as t
                where t.lane = l.lane and t.turn >= l.from_turn order by t.turn limit places
            ) as r group by r.name
            union all
            select '', coalesce(u.turn, 0), coalesce(u.served, 0), u.tid from (select) as one left join lateral (
                select u.turn, u.served, u.ctid as tid from hawser.ungrouped_turn as u where u.queue = queue_ and u.priority = priority_
                order by u.version desc limit 1
            ) as u on true where ungrouped_due > 0
        ),
        offers as (
            select w.*, least(w.weight * greatest(1, places / sum(w.weight) over ()) - w.served % w.weight,
                case when w.name = '' then ungrouped_due end)::integer as offer
            from (
                select o.*, case when weighted then
                    coalesce((select w.weight from hawser.weight as w where w.queue = queue_ and w.group_name = o.name), 1) else 1 end as weight
                from open_ as o
            ) as w
        ),
        served as materialized (
            select c.*, least(c.offer, places - c.before)::integer as offered from (
                select f.*, row_number() over (order by f.turn) as n,
                    coalesce(sum(f.offer) over (order by f.turn rows between unbounded preceding and 1 preceding), 0) as before
                from offers as f
            ) as c where c.before < places
        ),
        stands as materialized (
            select s.n, s.name, s.turn, s.served, s.weight, s.offered, l.lane, t.tid, t.begin_at, t.begin_seq, t.waited, t.idle
            from served as s cross join unnest(lanes) as l(lane) cross join lateral (
                select t.ctid as tid, t.begin_at, t.begin_seq, t.waited, t.idle from hawser.group_turn as t
                where t.lane = l.lane and t.group_name = s.name order by t.version desc limit 1
            ) as t where s.name <> ''
        ),
        heads as (
            select s.*, false as late, j.tid as job, j.run_at, j.seq from stands as s left join lateral (
                select j.ctid as tid, j.run_at, j.seq from hawser.job as j
                where j.lane = s.lane and j.group_name = s.name and j.kind = 4 and (j.run_at, j.seq) >= (s.begin_at, s.begin_seq) and j.run_at <= at
                    and not j.running and (j.expires_at > at) is not false
                order by j.run_at, j.seq limit s.offered + 1
            ) as j on true
            union all
            select s.*, k.kind > 5 and j.run_at <= at - 500000, j.tid, j.run_at, j.seq
            from stands as s cross join (values (5), (6), (7)) as k(kind) cross join lateral (
                select j.ctid as tid, j.run_at, j.seq from hawser.job as j
                where j.lane = s.lane and j.group_name = s.name and j.kind = k.kind and (j.run_at, j.seq) >= (s.begin_at, s.begin_seq) and j.run_at <= at
                    and not j.running and (j.expires_at > at) is not false
                order by j.run_at, j.seq limit s.offered + 1
            ) as j where s.waited
        ),
        ranked as materialized (
            select r.*, r.job is not null
                and row_number() over (partition by r.n order by r.reserved desc, r.run_at, r.seq) <= r.offered as chosen
            from (
                select h.*, h.late and row_number() over (partition by h.n, h.late order by h.run_at, h.seq) <= (h.offered + h.served % 2) / 2 as reserved
                from heads as h
            ) as r
        ),
        left_ as (
            select g.*, sum(g.given) over (partition by g.n) as got from (
                select r.n, r.lane, min(r.name) as name, min(r.turn) as turn, min(r.served) as served, min(r.weight) as weight, min(r.tid) as tid,
                    bool_and(r.idle) as idle, count(*) filter (where r.chosen) as given, bool_or(r.waited) as waited,
                    min(array[r.run_at, r.seq]) filter (where not r.chosen and r.job is not null) as next_
                from ranked as r group by r.n, r.lane
            ) as g
        ),
        next_ as (
            select p.tid, p.served + p.got as served, p.next_ is not null as has_turn, p.turn, p.got > 0 and (
                    (p.served + p.got) % p.weight = 0 or p.got >= p.weight) as moves,
                coalesce(p.next_[1], (
                    select min(h.run_at) from (values (4), (5), (6), (7)) as k(kind) cross join lateral (
                        select j.run_at from hawser.job as j
                        where (p.waited or k.kind = 4) and j.lane = p.lane and j.group_name = p.name and j.kind = k.kind and j.run_at > at and not j.running
                            and (j.expires_at > at) is not false
                        order by j.run_at, j.seq limit 1
                    ) as h
                )) as next_due, coalesce(p.next_[2], 0) as next_seq, p.idle
            from left_ as p order by p.n, p.lane
        ),
        stood as (
            select n.tid, case when n.has_turn then case when n.moves then nextval('hawser.turns') else n.turn end end as turn,
                case when not n.has_turn then n.next_due end as due_at, n.next_due, n.next_seq, n.served
            from next_ as n where not n.idle or n.next_due is not null
        )
        select array_agg(s.tid), array_agg(s.turn), array_agg(s.due_at), array_agg(s.next_due), array_agg(s.next_seq), array_agg(s.served),
            (select array_agg(r.job order by r.n, r.run_at, r.seq) from ranked as r where r.chosen),
            (select array_agg(r.seq order by r.n, r.run_at, r.seq) from ranked as r where r.chosen),
            coalesce((select s.offered from served as s where s.name = ''), 0), (select s.served from served as s where s.name = ''),
            (select s.tid from served as s where s.name = '')
        into rows_, turns, dues, begins, begin_seqs, served_, tids, seqs, plain, plain_served, plain_row
        from stood as s;
    end if;

    visited := coalesce(cardinality(rows_), 0);
    taken := coalesce(cardinality(tids), 0);
    if taken > 0 then
        -- What could be looked up in an index is written so that it is not: the rows are found by their places, on an empty table, too.
        select count(*) into locked from (
            select from hawser.job as j
            where j.ctid = any (tids) and not j.running and (j.lane = any (lanes) and j.group_name is not null and j.run_at <= at) is true
                and (j.expires_at > at) is not false
            for update skip locked
        ) as l;
        if locked < taken then
            taken := null;
            return;
        end if;
        with grant_ as materialized (select nextval('hawser.grants') as id),
        started as (
            update hawser.job as j set running = true, attempt = j.attempt + 1, lease = j.lease + 1, worker = worker_, granted = g.id,
                meters = null, started_at = at, leased_for = least(lease_us, (j.timeout * 1000000)::bigint + grace),
                lease_until = at + least(lease_us, (j.timeout * 1000000)::bigint + grace)
            from grant_ as g where j.ctid = any (tids)
            returning j.id, j.lane, j.kind, j.lease, j.lease_until
        ),
        granted as (
            insert into hawser.granted (id, look_at, jobs)
            select g.id, t.look_at, t.jobs from grant_ as g, (select min(t.lease_until) as look_at, array_agg(t.id) as jobs from started as t) as t
        ),
        counted as (
            insert into hawser.counted (minute, lane, name, count)
            select case p.name when 'claimed' then at / 60000000 else 0 end, t.lane, p.name, p.sign * t.count
            from (select t.lane, t.kind % 4 as kind, count(*) from started as t group by 1, 2) as t cross join lateral (
                values ('@running', 1), ('claimed', 1), (case when t.kind = 3 then '@retrying' when t.kind = 2 then '@timed' else '@fresh' end, -1)
            ) as p(name, sign)
        )
        select array_agg(s.id), array_agg(s.lease) into ids, leases from started as s;
    end if;
    if visited > 0 then
        update hawser.group_turn as t set turn = w.turn, due_at = w.due_at, shut = false, begin_at = coalesce(w.begin_at, at),
            begin_seq = w.begin_seq, idle = w.begin_at is null, version = t.version + 1, served = case when w.begin_at is null then 0 else w.served end
        from unnest(rows_, turns, dues, begins, begin_seqs, served_) as w(tid, turn, due_at, begin_at, begin_seq, served) where t.ctid = w.tid;
    end if;
    if plain > 0 then
        update hawser.ungrouped_turn as u set turn = nextval('hawser.turns'), served = plain_served + plain, changes = u.changes + 1,
            version = (u.changes + 1) / 16
        where u.ctid = plain_row;
        if not found then
            insert into hawser.ungrouped_turn (queue, priority, turn, served) values (queue_, priority_, nextval('hawser.turns'), plain);
        end if;
    end if;
end
$$;
