-- name: begin_to_write
-- Takes the write lock for a transaction of the caller's own, and changes nothing.
update hawser_queue set keys = keys where false

-- name: known
-- Which of these ids the store has, and what tells whether another job is the same.
select id, task, queue, body from hawser_job where id in (select value from json_each(:ids))

-- name: holder
-- The job that holds a key now. Without `until` the hold ends with the job, or with its start if it was to hold until then; a window
-- also holds while its job is live.
select job_id from hawser_key as k where queue = :queue and task = :task and key = :key and (until > :now
    or until is null and not exists (select 1 from hawser_job as j where j.id = k.job_id and j.key_ttl < 0 and j.attempt > 0)
    or until is not null and exists (select 1 from hawser_job as j where j.id = k.job_id and (j.queue, j.task, j.key) = (k.queue, k.task, k.key) and j.state in ('ready', 'running')))

-- name: add
-- A new job. Its id is not in the store: the writer looked, and no other process writes meanwhile.
insert into hawser_job (id, task, queue, priority, state, lane, run_at, enqueued_at, max_attempts, [[given]])
values (?, ?, ?, ?, 'ready', ?, ?, ?, ?, [[given marks]])

-- name: key_lies
-- Whether a hold lies there, run out or not.
select 1 from hawser_key where queue = :queue and task = :task and key = :key

-- name: hold_key
-- Give a key to a job; a hold that has run out makes way.
insert into hawser_key (queue, task, key, job_id, until) values (:queue, :task, :key, :job_id, :until)
on conflict (queue, task, key) do update set job_id = excluded.job_id, until = excluded.until, newest = null, put_off_until = null

-- name: free_key
-- A job holds its key no longer, unless its window goes on.
delete from hawser_key where queue = :queue and task = :task and key = :key and job_id = :job_id and (until is null or until <= :now)

-- name: windows_over
-- The windows that ran out first, and whether their jobs are still live.
select queue, task, key, exists (select 1 from hawser_job as j where j.id = k.job_id and (j.queue, j.task, j.key) = (k.queue, k.task, k.key) and j.state in ('ready', 'running'))
from hawser_key as k indexed by hawser_key_until where until <= :now order by until limit :limit

-- name: outlive_window
-- The job lives longer than the window of its key: the hold ends with the job.
update hawser_key set until = null where queue = ? and task = ? and key = ?

-- name: forget_key
-- Let go of a window that has run out.
delete from hawser_key where queue = ? and task = ? and key = ?

-- name: count_keys
-- Keys held in a queue, kept up to date so that no read has to count.
insert into hawser_queue (queue, keys) values (:queue, :keys)
on conflict (queue) do update set keys = keys + excluded.keys

-- name: waiting
-- How many jobs of a queue wait.
select coalesce(sum(fresh + timed + retrying), 0) from hawser_depth where queue = :queue

-- name: lanes
-- The lanes of a queue that hold jobs, highest priority first; for each kind where its first job without a group stands, due or not,
-- past its expiry or not.
select task, priority, grouped,
    case when fresh > 0 then (select run_at from hawser_job indexed by hawser_job_ready
        where state = 'ready' and queue = d.queue and task = d.task and priority = d.priority and lane = 0 order by run_at, seq limit 1) end,
    case when fresh > 0 then (select seq from hawser_job indexed by hawser_job_ready
        where state = 'ready' and queue = d.queue and task = d.task and priority = d.priority and lane = 0 order by run_at, seq limit 1) end,
    case when timed > 0 then (select run_at from hawser_job indexed by hawser_job_ready
        where state = 'ready' and queue = d.queue and task = d.task and priority = d.priority and lane = 1 order by run_at, seq limit 1) end,
    case when timed > 0 then (select seq from hawser_job indexed by hawser_job_ready
        where state = 'ready' and queue = d.queue and task = d.task and priority = d.priority and lane = 1 order by run_at, seq limit 1) end,
    case when retrying > 0 then (select run_at from hawser_job indexed by hawser_job_ready
        where state = 'ready' and queue = d.queue and task = d.task and priority = d.priority and lane = 2 order by run_at, seq limit 1) end,
    case when retrying > 0 then (select seq from hawser_job indexed by hawser_job_ready
        where state = 'ready' and queue = d.queue and task = d.task and priority = d.priority and lane = 2 order by run_at, seq limit 1) end
from hawser_depth as d
where queue = :queue and fresh + timed + retrying > 0 order by priority desc

-- name: due
-- Some due jobs of one lane behind a place, in order of due time.
select run_at, seq, id, task, queue, priority, attempt, max_attempts, lease, enqueued_at, crashes, lane, [[claimed]]
from hawser_job indexed by hawser_job_ready
where state = 'ready' and queue = ? and task = ? and priority = ? and lane = ? and (run_at, seq) > (?, ?) and run_at <= ?
    and (expires_at is null or expires_at > ?)
order by run_at, seq limit ?

-- name: latest
-- The highest time that any process has had, and how often the clock was found to be set back.
select value from hawser_meta where name = 'clock'

-- name: note_latest
-- The highest time, from now on.
insert or replace into hawser_meta (name, value) values ('clock', ?)

-- name: all_lanes
-- The lanes of all queues that hold jobs.
select queue, task, priority, fresh, timed, retrying, grouped from hawser_depth where fresh + timed + retrying > 0

-- name: make_due
-- After the clock was set back: the jobs of one lane that were due before are due now, in the same order.
update hawser_job indexed by hawser_job_ready set run_at = ?
where state = 'ready' and queue = ? and task = ? and priority = ? and lane = ? and run_at > ? and run_at <= ?

-- name: start
-- Claim jobs that get a lease of the same length: the attempt is counted here, in the claim, and the lease number rises. One statement
-- for all: a statement for each costs 1.7 times as much, and gives the interpreter's lock away and takes it again for each. The plus
-- keeps SQLite from reading all jobs that are ready instead, as it does when ANALYZE saw a file with one job.
update hawser_job set state = 'running', attempt = attempt + 1, lease = lease + 1, lease_until = :now + :leased_for, leased_for = :leased_for,
    started_at = :now, worker = :worker
where seq in (select value from json_each(:jobs)) and +state = 'ready'

-- name: held
-- The fence: of these (id, lease) pairs, the runs that stand, their time up or not. A lease that is not the current one is not among them.
select j.seq, j.id, j.lease, j.task, j.queue, j.priority, j.attempt, j.max_attempts, j.timeout, j.lease_until, j.started_at,
    j.worker, j.key, j.key_ttl, j.cancel_asked, j.returned, j.group_name, j.batch
from json_each(:leases) as want cross join hawser_job as j
where j.id = want.value ->> 0 and j.lease = want.value ->> 1 and j.state = 'running'

-- name: finish
-- A run that was done, fenced like `held`: it changes no row when the lease is not the current one.
update hawser_job set state = 'done', finished_at = ?, result = ?, reason = null, lease_until = null, settled = lease
where seq = ? and id = ? and lease = ? and state = 'running'

-- name: finish_all
-- Runs that were done without a result, each fenced as in `finish`, in one statement.
update hawser_job as j set state = 'done', finished_at = :now, result = null, reason = null, lease_until = null, settled = j.lease
from json_each(:runs) as want
where j.seq = want.value ->> 0 and j.id = want.value ->> 1 and j.lease = want.value ->> 2 and j.state = 'running'

-- name: leave
-- A run that ended any other way.
update hawser_job set state = ?, lane = ?, run_at = coalesce(?, run_at), finished_at = ?, attempt = ?, returned = ?, lease = ?, settled = ?, cancel_asked = ?,
    reason = case when ? then reason else ? end, crashes = crashes + ?, result = null, lease_until = null
where seq = ?

-- name: record
-- What is kept of an attempt that did not end well.
insert into hawser_attempt (job, lease, number, worker, started_at, ended_at, outcome, error, traceback)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_dead
-- A job is dead; its fingerprint is what its error has in common with others.
insert into hawser_dead (seq, id, task, queue, fingerprint) values (?, ?, ?, ?, ?)

-- name: remove_dead
-- A job is not dead any longer.
delete from hawser_dead where seq = ?

-- name: standing
-- Where jobs stand whose lease was refused.
select id, lease, settled, state, queue, task, run_at, attempt, max_attempts from hawser_job where id in (select value from json_each(:ids))

-- name: holders
-- Who last claimed these jobs, and under which lease.
select id, lease, worker from hawser_job where id in (select value from json_each(:ids))

-- name: remove
-- Forget a job.
delete from hawser_job where seq = ?

-- name: remove_attempts
-- Forget what is kept of its attempts.
delete from hawser_attempt where job = ?

-- name: trim_attempts
-- Forget the oldest attempts of a job that has very many.
delete from hawser_attempt where job = ? and lease <= (
    select lease from hawser_attempt where job = ? order by lease desc limit 1 offset ?)

-- name: lengthen
-- Extend a lease.
update hawser_job set lease_until = ?, leased_for = ? where seq = ?

-- name: leased_for
-- For how long a run was given its lease last.
select leased_for from hawser_job where id = ? and state = 'running'

-- name: note_progress
-- What a run says of its progress.
update hawser_job set progress = ? where seq = ?

-- name: expired
-- The runs whose lease has run out, longest ago first, and whether it was ever lengthened.
select seq, id, lease, task, queue, priority, attempt, max_attempts, timeout, lease_until, started_at, worker, key, key_ttl,
    cancel_asked, returned, group_name, batch, lease_until - leased_for > started_at
from hawser_job indexed by hawser_job_running
where state = 'running' and lease_until <= :now order by lease_until, seq limit :limit

-- name: cut_leases
-- After the clock was set back: no lease may have more time left than it was given.
update hawser_job set lease_until = :now + leased_for where state = 'running' and lease_until - :now > leased_for

-- name: next_due
-- When the next job of one lane is due.
select run_at from hawser_job indexed by hawser_job_ready
where state = 'ready' and queue = ? and task = ? and priority = ? and lane = ? order by run_at limit 1

-- name: next_due_without
-- The same, without the jobs of these ids.
select run_at from hawser_job indexed by hawser_job_ready
where state = 'ready' and queue = ? and task = ? and priority = ? and lane = ? and id not in (select value from json_each(?))
order by run_at limit 1

-- name: move
-- Jobs that came to a place, or left it.
insert into hawser_depth (queue, task, priority, fresh, timed, retrying, running, done, dead, cancelled, grouped, held)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (queue, task, priority) do update set fresh = fresh + excluded.fresh, timed = timed + excluded.timed,
    retrying = retrying + excluded.retrying, running = running + excluded.running, done = done + excluded.done,
    dead = dead + excluded.dead, cancelled = cancelled + excluded.cancelled, grouped = grouped + excluded.grouped,
    held = held + excluded.held

-- name: tally
-- What happened in this minute.
insert into hawser_tally (minute, queue, task, event, count) values (?, ?, ?, ?, ?)
on conflict (minute, queue, task, event) do update set count = count + excluded.count
