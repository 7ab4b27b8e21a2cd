-- part: place
-- How many jobs of a queue, or of all, stand where. From `clock` and from `recent`, what was counted and is not in the tally yet.
-- $2 a queue or null.
place as materialized (
    select c.lane, l.grouped, c.name, c.count from (
        select a.lane, a.name, sum(a.count)::bigint as count from (
            select t.lane, t.name, t.count from hawser.tally as t
            where t.minute = 0 and t.lane = any (array(select l.id from hawser.lane as l where $2::text is null or l.queue = $2))
            union all select r.lane, r.name, r.count from recent as r where r.minute = 0
        ) as a group by a.lane, a.name having sum(a.count) <> 0
    ) as c join hawser.lane as l on l.id = c.lane where $2 is null or l.queue = $2
)

-- part: head
-- Of each place where jobs wait: when its first job is due, how many are past their time and how many before it, counted up to a limit.
-- $3 the limit.
source as materialized (
    select p.lane, (k.kind + g.kind)::smallint as kind
    from place as p join (values ('@fresh', 0), ('@fresh', 1), ('@timed', 2), ('@retrying', 3)) as k(name, kind) on k.name = p.name
    cross join (values (0), (4)) as g(kind) where g.kind = 0 or p.grouped
),
head as materialized (
    select s.lane, s.kind, h.run_at, p.past, l.later from source as s
    cross join lateral (
        select j.run_at from hawser.job as j where j.lane = s.lane and j.kind = s.kind and not j.running order by j.run_at, j.seq limit 1
    ) as h
    cross join lateral (
        select count(*) as past from (
            select from hawser.job as j
            where s.kind % 4 > 1 and h.run_at <= (select now from clock) and j.lane = s.lane and j.kind = s.kind
                and j.run_at <= (select now from clock) and not j.running limit $3
        ) as e
    ) as p
    cross join lateral (
        select count(*) as later from (
            select from hawser.job as j
            where p.past = $3 and j.lane = s.lane and j.kind = s.kind and j.run_at > (select now from clock) and not j.running limit $3
        ) as e
    ) as l
)

-- part: told_places
-- The time, the version of the lane catalog, how many jobs stand where, by lane.
c.now, c.version, (select json_agg(json_build_array(p.lane, p.name, p.count)) from place as p)::text as counts

-- part: told_heads
-- And the heads.
(select json_agg(json_build_array(h.lane, h.kind, h.run_at, h.past, h.later)) from head as h)::text as heads

-- part: clock
-- The time.
clock as materialized (
    select n.now, n.now / 60000000 as this, (select version from hawser.control) as version
    from (select hawser.now($1) as now offset 0) as n
)

-- part: recent
-- What stands beside the tally, read once: its table may have many pages that were emptied a moment ago.
-- $4 how many minutes are summed of how jobs ended.
recent as materialized (
    select d.minute, d.lane, d.name, sum(d.count)::bigint as count from hawser.counted as d
    where d.minute = 0 or d.minute > (select greatest(c.this - $4::bigint, 0) from clock as c) group by d.minute, d.lane, d.name
)

-- part: placed
-- The same of places alone.
recent as materialized (
    select d.minute, d.lane, d.name, sum(d.count)::bigint as count from hawser.counted as d
    where d.minute = 0 group by d.minute, d.lane, d.name
)

-- part: told_tallies
-- How jobs ended, what else happened, the first minute in which anything was counted, and how many keys have run out but are not yet
-- swept, counted up to a limit; by queue.
(select json_agg(json_build_array(e.queue, e.name, e.count)) from event as e)::text as events, (
    select least(
        (select min(t.minute) from hawser.tally as t where t.minute > (select greatest(m.this - $4, 0) from clock as m)),
        (select min(r.minute) from recent as r where r.minute > 0)
    )
) as first, (
    select json_object_agg(k.queue, k.count) from (
        select e.queue, count(*) from (
            select k.queue from hawser.held_key as k where k.until <= (select now from clock) and not k.outlived
                and (select true from hawser.job as j where j.id = k.job_id and j.lane = k.lane and j.key = k.key) is null
            order by k.until limit 10000
        ) as e group by e.queue
    ) as k
)::text as keys_over

-- name: depths
-- How many jobs of one queue, or of all, stand where.
with [[part clock]],
[[part placed]],
[[part place]]
select [[part told_places]] from clock as c

-- name: depths_and_heads
-- The same, with the first jobs that wait.
with [[part clock]],
[[part placed]],
[[part place]],
[[part head]]
select [[part told_places]], [[part told_heads]] from clock as c

-- name: figures
-- All of it for all queues, in one round trip: `$4` minutes of how jobs ended, `$5` of what else happened.
with [[part clock]],
[[part recent]],
[[part place]],
[[part head]],
event as (
    select l.queue, t.name, sum(t.count)::bigint as count from (
        select t.lane, t.name, t.count from hawser.tally as t
        where t.minute > (select greatest(m.this - $4, 0) from clock as m) and t.name between 'ended:' and 'ended:99'
        union all
        select t.lane, t.name, t.count from hawser.tally as t
        where t.minute > (select greatest(m.this - $5::bigint, 0) from clock as m) and t.minute <= (select this from clock)
            and strpos(t.name, ':') = 0
        union all
        select r.lane, r.name, r.count from clock as m cross join recent as r
        where r.minute > 0 and (r.name like 'ended:%' or r.minute > m.this - $5 and r.minute <= m.this and strpos(r.name, ':') = 0)
    ) as t join hawser.lane as l on l.id = t.lane group by l.queue, t.name
)
select [[part told_places]], [[part told_heads]], [[part told_tallies]] from clock as c

-- name: queue_figures
-- The same of one queue. Its events are found minute by minute and lane by lane: what happened to the others is not read.
with recursive [[part clock]],
[[part recent]],
[[part place]],
[[part head]],
minutes (minute) as (
    select min(t.minute) from hawser.tally as t where t.minute > (select greatest(m.this - $4, 0) from clock as m)
    union all
    select (select min(t.minute) from hawser.tally as t where t.minute > m.minute) from minutes as m where m.minute is not null
),
lanes as materialized (select l.id from hawser.lane as l where l.queue = $2),
event as (
    select $2 as queue, t.name, sum(t.count)::bigint as count from (
        select e.name, e.count from minutes as m cross join lanes as l cross join lateral (
            select e.name, e.count from hawser.tally as e
            where e.minute = m.minute and e.lane = l.id and e.name between 'ended:' and 'ended:99'
            union all
            select e.name, e.count from clock as c cross join hawser.tally as e
            where m.minute > c.this - $5::bigint and m.minute <= c.this and e.minute = m.minute and e.lane = l.id and strpos(e.name, ':') = 0
        ) as e
        union all
        select r.name, r.count from clock as m cross join recent as r join hawser.lane as l on l.id = r.lane
        where l.queue = $2 and r.minute > 0
            and (r.name like 'ended:%' or r.minute > m.this - $5 and r.minute <= m.this and strpos(r.name, ':') = 0)
    ) as t group by t.name
)
select [[part told_places]], [[part told_heads]], [[part told_tallies]] from clock as c
