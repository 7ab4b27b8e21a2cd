-- name: patience
-- For how many milliseconds this transaction waits for a lock.
select set_config('lock_timeout', $1::text, true)

-- name: debounced_waiting
-- The debounced jobs that hold these keys and were never given out, locked, so that no claim takes them meanwhile: claims skip them. One
-- that runs is not locked: its end must not wait for this transaction.
select h.queue, h.task, h.key, j.id::text, j.debounced_by::text, j.debounce_until from hawser.held_key as h
join hawser.job as j on j.id = h.job_id
where (h.queue, h.task, h.key) in (select * from unnest($1::text[], $2::text[], $3::text[])) and h.until is null
    and not j.running and j.lease = 0 and j.debounced_by is not null
order by h.queue, h.task, h.key for update of j

-- name: debounced_started
-- The debounced jobs that have these keys and were given out: the call whose payload they have, and whether they wait without an attempt.
select h.queue, h.task, h.key, j.id::text, j.debounced_by::text, j.lane, j.attempt = 0 from hawser.held_key as h
join hawser.job as j on j.id = h.job_id
where (h.queue, h.task, h.key) in (select * from unnest($1::text[], $2::text[], $3::text[])) and h.until is null
    and j.lease > 0 and j.debounced_by is not null

-- name: replace_payload
-- A job that waits gets the payload of another call, and another place among those that wait.
with old as materialized (select j.id, j.lane, j.kind, j.group_name from hawser.job as j where j.id = $1),
moved as (
    update hawser.job as j set body = $2, indexed = $3, expires_at = $4, run_at = $5, debounced_by = $7,
        kind = $6 + case when o.group_name is null then 0 else 4 end
    from old as o where j.id = any (array[o.id])
),
opened as (
    insert into hawser.arrived (lane, group_name, due_at) select o.lane, o.group_name, $5::bigint from old as o where o.group_name is not null
)
insert into hawser.counted (minute, lane, name, count)
select 0, o.lane, case p.kind % 4 when 2 then '@timed' else '@fresh' end, p.sign
from old as o cross join lateral (values (o.kind, -1), ($6::smallint, 1)) as p(kind, sign)

-- name: note_debounced
-- New jobs that are debounced: until when each may be put off.
update hawser.job as j set debounced_by = j.id, debounce_until = hawser.now($1::bigint) + w.at_most
from unnest($2::uuid[], $3::bigint[]) as w(id, at_most) where j.id = any (array[w.id])
