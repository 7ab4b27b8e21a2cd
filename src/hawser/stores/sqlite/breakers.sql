-- name: breaker
-- The breaker of a task.
select about, probe_at, probe_id, probe_lease from hawser_breaker where task = :task

-- name: breakers
-- All breakers.
select task, about, probe_at, probe_id, probe_lease from hawser_breaker order by task

-- name: put_breaker
-- The breaker of a task, from now on.
insert or replace into hawser_breaker (task, about, open, probe_at, probe_every, probe_id, probe_lease)
values (:task, :about, :open, :probe_at, :probe_every, :probe_id, :probe_lease)

-- name: drop_breaker
-- A task has no breaker.
delete from hawser_breaker where task = :task

-- name: note_probe
-- A claim has taken the probe; the next may be taken later.
update hawser_breaker set probe_at = :now + probe_every, probe_id = :id, probe_lease = :lease where task = :task

-- name: forget_probe
-- The job of a probe is removed, and was not done.
update hawser_breaker set probe_id = null, probe_lease = null where task = ? and probe_id = ?
