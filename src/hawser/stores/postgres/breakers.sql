-- name: breaker
-- The breaker of a task; locked.
select about, probe_at, probe_id::text, probe_lease from hawser.breaker where task = $1 for update

-- name: breakers
-- All breakers.
select task, about, probe_at, probe_id::text, probe_lease from hawser.breaker order by task

-- name: put_breaker
-- The breaker of a task, from now on.
insert into hawser.breaker (task, about, open, probe_at, probe_every, probe_id, probe_lease) values ($1, $2, $3, $4, $5, $6::uuid, $7)
on conflict (task) do update set about = excluded.about, open = excluded.open, probe_at = excluded.probe_at, probe_every = excluded.probe_every,
    probe_id = excluded.probe_id, probe_lease = excluded.probe_lease

-- name: drop_breaker
-- A task has no breaker.
delete from hawser.breaker where task = $1

-- name: take_probe
-- Claim the probe of a task whose breaker is open, see the function.
select * from hawser.take_probe_job($1::text, $2::bigint, $3::bigint, $4::integer[], $5::smallint[], $6::bigint[], $7::bigint[], $8::integer[],
    $9::text, $10::bigint, $11::bigint, $12::bigint, $13::uuid[], $14::integer[], $15::bigint[], $16::integer[], $17::integer[],
    $18::bigint, $19::integer)
