-- Statements of the release whose schema was version 1. Not to be changed.

-- name: add
-- A new job. Its id is not in the store: the writer looked, and nobody else writes meanwhile.
insert into hawser_job (id, task, queue, body, priority, state, lane, run_at, enqueued_at, max_attempts, timeout,
    key, key_ttl, tags, parent_id, confirm_replay, schedule, tick)
values (?, ?, ?, ?, ?, 'ready', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: hold_key
-- Give a key to a job; a hold that has run out makes way.
insert into hawser_key (queue, key, job_id, until) values (:queue, :key, :job_id, :until)
on conflict (queue, key) do update set job_id = excluded.job_id, until = excluded.until

-- name: count_keys
-- Keys held in a queue, kept up to date so that nobody has to count.
insert into hawser_queue (queue, keys) values (:queue, :keys)
on conflict (queue) do update set keys = keys + excluded.keys

-- name: move
-- Jobs that came to a place, or left it.
insert into hawser_depth (queue, task, priority, fresh, timed, retrying, running, done, dead, cancelled)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (queue, task, priority) do update set fresh = fresh + excluded.fresh, timed = timed + excluded.timed,
    retrying = retrying + excluded.retrying, running = running + excluded.running, done = done + excluded.done,
    dead = dead + excluded.dead, cancelled = cancelled + excluded.cancelled
