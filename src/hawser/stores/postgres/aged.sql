-- name: take_with_aged
-- As `take`, from one source, of a queue in which lower priorities wait as well: some places go first to the one of these whose jobs have
-- been due for longest, if that is very long. So it is only while the source itself has a due job.
-- As for `take`, but $7 null for sources of lower priorities; $13 their priorities, $14 the places for what has been due for very long,
-- $15 how long in microseconds.
with clock as materialized (select hawser.now($1) as now, (select version from hawser.control) as version),
source as materialized (
    select * from unnest($3::integer[], $4::smallint[], $5::bigint[], $6::bigint[], $7::integer[], $13::smallint[])
        with ordinality as s(lane, kind, run_at, seq, places, priority, n)
),
other as materialized (
    select from clock as c cross join source as s cross join lateral (
        select from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= c.now and not j.running
            and (j.expires_at > c.now) is not false and j.id <> all ($12::uuid[])
        order by j.run_at, j.seq limit 1
    ) as h where s.places = 0 limit 1
),
lead as materialized (
    select from clock as c cross join source as s cross join lateral (
        select from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= c.now and not j.running
            and (j.expires_at > c.now) is not false and j.id <> all ($12::uuid[])
        order by j.run_at, j.seq limit 1
    ) as h where s.places > 0 and c.version = $2 and c.now < $11 and not exists (select from other) limit 1
),
old as materialized (
    select s.n, s.priority, h.run_at, h.seq from clock as c cross join source as s cross join lateral (
        select j.run_at, j.seq from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= c.now - $15 and not j.running
            and (j.expires_at > c.now) is not false and j.id <> all ($12::uuid[])
        order by j.run_at, j.seq limit $14
    ) as h where s.places is null and exists (select from lead)
),
oldest as materialized (
    select o.n, count(*) as places from (
        select o.n from old as o where o.priority = (select e.priority from old as e order by e.run_at, e.priority desc limit 1)
        order by o.run_at, o.seq limit $14
    ) as o group by o.n
),
aged as materialized (
    select h.tid from clock as c cross join oldest as o join source as s on s.n = any (array[o.n]) cross join lateral (
        select j.ctid as tid from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= c.now - $15 and not j.running
            and (j.expires_at > c.now) is not false and j.id <> all ($12::uuid[])
        order by j.run_at, j.seq limit o.places for update skip locked
    ) as h
),
head as materialized (
    select h.tid from clock as c cross join source as s cross join lateral (
        select j.ctid as tid from hawser.job as j
        where j.lane = s.lane and j.kind = s.kind and (j.run_at, j.seq) >= (s.run_at, s.seq) and j.run_at <= c.now and not j.running
            and (j.expires_at > c.now) is not false and j.id <> all ($12::uuid[])
        order by j.run_at, j.seq limit s.places - (select count(*) from aged) for update skip locked
    ) as h where s.places > 0 and exists (select from lead)
    union all select a.tid from aged as a
),
[[part taken]]
