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

-- name: lanes
-- The lanes of a queue that hold jobs, highest priority first.
select task, priority, fresh, timed, retrying from hawser_depth
where queue = :queue and fresh + timed + retrying > 0 order by priority desc

-- name: due
-- The due jobs of one lane, in order of due time.
select run_at, seq, id, task, queue, body, priority, attempt, max_attempts, timeout, lease, enqueued_at, key, tags, parent_id,
    schedule, tick, crashes, lane
from hawser_job indexed by hawser_job_ready
where state = 'ready' and queue = ? and task = ? and priority = ? and lane = ? and run_at <= ?
order by run_at, seq limit ?

-- name: start
-- Claim a job: the attempt is counted here, in the claim, and the lease number rises.
update hawser_job set state = 'running', attempt = attempt + 1, lease = lease + 1, lease_until = ?, leased_for = ?,
    started_at = ?, worker = ?
where seq = ? and state = 'ready'

-- name: held
-- The fence: of these (id, lease) pairs, the runs that stand. A lease that is not the current one, or has run out, is not among them.
select j.seq, j.id, j.lease, j.task, j.queue, j.priority, j.attempt, j.max_attempts, j.timeout, j.lease_until, j.started_at,
    j.worker, j.key, j.key_ttl, j.cancel_asked, j.returned
from json_each(:leases) as want cross join hawser_job as j
where j.id = want.value ->> 0 and j.lease = want.value ->> 1 and j.state = 'running' and j.lease_until > :now

-- name: finish
-- A run that was done, fenced like `held`: it changes no row when the lease is not the current one, or has run out.
update hawser_job set state = 'done', finished_at = ?, result = ?, reason = null, lease_until = null, settled = lease
where seq = ? and id = ? and lease = ? and state = 'running' and lease_until > ?

-- name: leave
-- A run that ended any other way.
update hawser_job set state = ?, lane = ?, run_at = coalesce(?, run_at), finished_at = ?, attempt = ?, returned = ?, lease = ?, settled = ?, cancel_asked = ?,
    reason = case when ? then reason else ? end, crashes = crashes + ?, result = null, lease_until = null
where seq = ?

-- name: record
-- What is kept of an attempt that did not end well.
insert into hawser_attempt (job, lease, number, worker, started_at, ended_at, outcome, error, traceback)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: lengthen
-- Extend a lease.
update hawser_job set lease_until = ?, leased_for = ? where seq = ?

-- name: expired
-- The runs whose lease has run out, longest ago first.
select seq, id, lease, task, queue, priority, attempt, max_attempts, timeout, lease_until, started_at, worker, key, key_ttl,
    cancel_asked, returned
from hawser_job indexed by hawser_job_running
where state = 'running' and lease_until <= :now order by lease_until, seq limit :limit
