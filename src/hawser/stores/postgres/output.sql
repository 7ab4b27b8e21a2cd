-- name: hold_writers
-- The fence: the runs that may write, locked until their chunks are written, and the time.
-- $1 a test's clock, $2 ids, $3 leases.
select j.id, j.lease, hawser.now($1) from unnest($2::uuid[], $3::bigint[]) as w(id, lease) join hawser.job as j on j.id = any (array[w.id])
where j.lease = w.lease and j.running order by j.id for no key update of j

-- name: last_chunks
-- The last chunks of these jobs. A statement of its own: that which has waited for a lock does not see what was written meanwhile.
select w.id, o.number, o.total, o.lease, o.place from unnest($1::uuid[]) as w(id) cross join lateral (
    select e.number, e.total, e.lease, e.place from hawser.output as e where e.job = any (array[w.id]) order by e.number desc limit 1
) as o

-- name: add_chunks
-- Chunks behind the last ones.
insert into hawser.output (job, number, total, lease, place, attempt, at, body)
select * from unnest($1::uuid[], $2::integer[], $3::integer[], $4::bigint[], $5::integer[], $6::integer[], $7::bigint[], $8::bytea[])

-- name: output
-- Chunks of a job behind a number, in order.
select o.number, o.body, o.at, o.lease, o.attempt from hawser.output as o where o.job = $1 and o.number > $2 order by o.number limit $3

-- name: forget_output
-- The output of jobs that are gone.
delete from hawser.output as o where o.job = any ($1::uuid[]) and not exists (select from hawser.job as j where j.id = o.job)
