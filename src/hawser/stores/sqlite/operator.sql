-- name: get
-- One job.
select * from hawser_job where id = :id

-- name: endings
-- How jobs stand: the last error of a dead one, else its reason; and what a done one returned.
select id, task, state, case state when 'dead' then coalesce(nullif((
        select a.error from hawser_attempt as a where a.job = seq and a.error is not null order by a.lease desc limit 1
    ), ''), reason) when 'cancelled' then reason end, case state when 'done' then result end
from hawser_job where id in (select value from json_each(:ids))

-- name: attempts
-- What is kept of the attempts of these jobs, oldest first.
select job, number, lease, worker, started_at, ended_at, outcome, error, traceback from hawser_attempt
where job in (select value from json_each(:jobs)) order by job, lease

-- name: found
-- The jobs that match, of those that one of the find_… statements below gives.
-- Those give the number and id of some jobs, newest first, from behind the cursor. They are narrow: what has to be sorted or
-- counted is not the jobs with their payloads.
select j.* from ({which}) as w cross join hawser_job as j where j.seq = w.seq and {matching} limit :limit

-- name: looked_at
-- How many jobs one of the find_… statements looks at, and the last of them.
select count(*), min(w.id) from ({which}) as w

-- name: find_any
-- All jobs.
select seq, id from hawser_job where id < :after order by id desc limit :scan

-- name: find_running
-- The running jobs: as many as are in flight.
select seq, id from hawser_job indexed by hawser_job_running where state = 'running' and id < :after order by id desc limit :scan

-- name: find_few
-- The waiting jobs of some lanes, the running ones, and those of some tasks that ended in some way.
-- Only asked when they are few, since it sorts them.
select f.seq, f.id from (
    select j.seq, j.id from json_each(:lanes) as l cross join hawser_job as j indexed by hawser_job_ready
    where j.state = 'ready' and j.queue = l.value ->> 0 and j.task = l.value ->> 1
    union all
    select j.seq, j.id from hawser_job as j indexed by hawser_job_running where :running and j.state = 'running'
    union all
    select j.seq, j.id from json_each(:ended) as e cross join hawser_job as j indexed by hawser_job_finished
    where j.finished_at is not null and j.task = e.value ->> 0 and j.state = e.value ->> 1
) as f where f.id < :after order by f.id desc limit :scan

-- name: find_failed
-- The jobs that are dead, or cancelled.
select seq, id from hawser_job indexed by hawser_job_failed
where state in ('dead', 'cancelled') and state = :state and id < :after order by id desc limit :scan

-- name: find_key
-- The jobs with one key.
select seq, id from hawser_job indexed by hawser_job_key
where key is not null and key = :key and id < :after order by id desc limit :scan

-- name: find_group
-- The dead jobs of one task whose errors have one fingerprint.
select seq, id from hawser_dead indexed by hawser_dead_group
where task = :of_task and fingerprint = :fingerprint and id < :after order by id desc limit :scan

-- name: find_members
-- The jobs of one group.
select seq, id from hawser_job indexed by hawser_job_grouped
where group_name is not null and group_name = :group_name and id < :after order by id desc limit :scan

-- name: find_indexed
-- The jobs that are found by one argument, which may stand at each of three places: three indexes in one order, merged.
select seq, id from hawser_job indexed by hawser_job_indexed_0
where indexed is not null and json_extract(indexed, '$[0]') = :argument and id < :after
union all
select seq, id from hawser_job indexed by hawser_job_indexed_1
where indexed is not null and json_extract(indexed, '$[1]') = :argument and id < :after
union all
select seq, id from hawser_job indexed by hawser_job_indexed_2
where indexed is not null and json_extract(indexed, '$[2]') = :argument and id < :after
order by id desc limit :scan

-- name: find_tagged
-- The jobs with one tag.
select seq, id from hawser_tag where tag = :tag and id < :after order by id desc limit :scan

-- name: find_batch
-- The jobs of one batch.
select seq, id from hawser_job indexed by hawser_job_batch
where batch is not null and batch = :batch and id < :after order by id desc limit :scan

-- name: find_children
-- The children of one job.
select seq, id from hawser_job indexed by hawser_job_parent
where parent_id is not null and parent_id = :parent_id and id < :after order by id desc limit :scan

-- name: find_scheduled
-- The jobs of one schedule.
select seq, id from hawser_job indexed by hawser_job_schedule
where schedule is not null and schedule = :schedule and id < :after order by id desc limit :scan

-- name: matching
-- What a filter asks for.
(:state is null or j.state = :state)
and (:waiting is null
    or j.state = 'ready' and case :waiting when 'held' then j.held is not null when 'retrying' then j.attempt > 0 and j.held is null
        else j.attempt = 0 and j.run_at > :now and j.held is null end)
and (:queue is null or j.queue = :queue) and (:task is null or j.task = :task)
and (:key is null or j.key = :key) and (:parent_id is null or j.parent_id = :parent_id)
and (:schedule is null or j.schedule = :schedule) and (:group_name is null or j.group_name = :group_name)
and (:argument is null or exists (select 1 from json_each(j.indexed) where value = :argument))
and (:batch is null or j.batch = :batch)
and (:since is null or j.enqueued_at >= :since) and (:until is null or j.enqueued_at < :until)
and (:tag is null or exists (select 1 from json_each(j.tags) where value = :tag))

-- name: dead_letters
-- Dead jobs in brief, newest first, from behind the cursor; the error only of those of one queue and task, or of all.
select id, task, queue, case when (:queue is null or queue = :queue) and (:task is null or task = :task) then
        substr(ltrim(coalesce(nullif((
            select a.error from hawser_attempt as a where a.job = seq and a.error is not null order by a.lease desc limit 1
        ), ''), reason), :blank), 1, :told)
    end, finished_at
from hawser_job indexed by hawser_job_failed
where state in ('dead', 'cancelled') and state = 'dead' and id < :after order by id desc limit :limit

-- name: dead_groups
-- The largest groups of dead jobs, each with its oldest and its newest job.
-- Asked of the index alone, but for those two jobs of each group.
with largest as (
    select task, fingerprint, sum(count) as count from hawser_group
    where (:queue is null or queue = :queue) and (:task is null or task = :task)
    group by task, fingerprint order by 3 desc, 1, 2 limit :limit
), ends as (
    select g.*, (
        select d.seq from hawser_dead as d where d.task = g.task and d.fingerprint = g.fingerprint and (:queue is null or d.queue = :queue)
        order by d.id limit 1
    ) as oldest, (
        select d.seq from hawser_dead as d where d.task = g.task and d.fingerprint = g.fingerprint and (:queue is null or d.queue = :queue)
        order by d.id desc limit 1
    ) as newest from largest as g
)
select e.task, e.fingerprint, e.count, (select finished_at from hawser_job where seq = e.oldest), j.id, j.queue,
    substr(ltrim(coalesce(nullif((
            select a.error from hawser_attempt as a where a.job = e.newest and a.error is not null order by a.lease desc limit 1
        ), ''), j.reason), :blank), 1, :told), j.finished_at
from ends as e join hawser_job as j on j.seq = e.newest order by e.count desc, e.task, e.fingerprint

-- name: count_ungrouped
-- How many dead jobs have no fingerprint yet, counted up to a limit.
select count(*) from (select 1 from hawser_dead indexed by hawser_dead_ungrouped where fingerprint is null limit ?)

-- name: ungrouped
-- Dead jobs that have no fingerprint yet, with their errors.
select d.seq, substr(ltrim(coalesce(nullif((
        select a.error from hawser_attempt as a where a.job = d.seq and a.error is not null order by a.lease desc limit 1
    ), ''), (select reason from hawser_job where seq = d.seq)), :blank), 1, :told)
from hawser_dead as d indexed by hawser_dead_ungrouped where d.fingerprint is null order by d.seq desc limit :limit

-- name: group_dead
-- What the error of a dead job has in common with others.
update hawser_dead set fingerprint = ? where seq = ?

-- name: depths
-- How many jobs stand where, in the queues from one name to another.
select queue, task, priority, fresh, timed, retrying, running, done, dead, cancelled, held, grouped from hawser_depth
where queue between :first and :last

-- name: count_due
-- How many jobs of one lane are past their time, counted up to a limit.
select count(*) from (select 1 from hawser_job indexed by hawser_job_ready
    where state = 'ready' and queue = ? and task = ? and priority = ? and lane = ? and run_at <= ? limit ?)

-- name: count_later
-- How many jobs of one lane are before their time, counted up to a limit.
select count(*) from (select 1 from hawser_job indexed by hawser_job_ready
    where state = 'ready' and queue = ? and task = ? and priority = ? and lane = ? and run_at > ? limit ?)

-- name: tallies
-- By queue, from one name to another: how jobs ended in the last hour, and what else happened of late.
-- Minute by minute, so that the counts of one queue are found without reading those of the others.
with recursive minutes (minute) as (
    select min(minute) from hawser_tally where minute > :ended
    union all
    select (select min(minute) from hawser_tally where minute > m.minute) from minutes as m where m.minute is not null
)
select t.queue, t.event, sum(t.count) from minutes as m cross join hawser_tally as t
where t.minute = m.minute and t.queue between :first and :last
    and (t.event between 'ended:' and 'ended:99' or t.minute > :recent and t.minute <= :this and instr(t.event, ':') = 0)
group by t.queue, t.event

-- name: first_minute
-- The first minute of the last hour in which anything was counted.
select min(minute) from hawser_tally where minute > :ended and minute <= :this

-- name: keys
-- Keys held, by queue, from one name to another.
select queue, keys from hawser_queue where keys <> 0 and queue between :first and :last

-- name: keys_over
-- How many keys have run out but are not yet swept, by queue, counted up to a limit.
select queue, count(*) from (
    select queue from hawser_key as k indexed by hawser_key_until where until <= :now
    and not exists (select 1 from hawser_job as j where j.id = k.job_id and (j.queue, j.task, j.key) = (k.queue, k.task, k.key) and j.state in ('ready', 'running')) limit 10000
) group by queue

-- name: target
-- A job that an operator acts on.
select seq, id, task, queue, priority, state, lane, attempt, lease, key, key_ttl, run_at, group_name, held, batch from hawser_job where id = :id

-- name: returned
-- A job that waits since a run under this lease was reclaimed. What a claim and its settlement leave has settled its own lease.
select seq, id, task, queue, priority, state, lane, attempt, lease, key, key_ttl, run_at, group_name, held, batch from hawser_job
where id = :id and state = 'ready' and lease = :lease + 1 and settled is not lease

-- name: ask_to_cancel
-- Ask a run to end.
update hawser_job set cancel_asked = 1, reason = :reason where seq = :seq

-- name: asked_to_stop
-- The runs of some workers that are to end.
select id, lease from hawser_job indexed by hawser_job_asked
where state = 'running' and cancel_asked = 1 and worker in (select value from json_each(:workers))

-- name: end
-- Finish a job that is not running.
update hawser_job set state = :state, finished_at = :now, reason = :reason, held = null, waits = null where seq = :seq

-- name: requeue
-- Ready again, with attempts from zero; the lease number stays.
update hawser_job set state = 'ready', lane = :lane, run_at = :run_at, finished_at = null, attempt = 0, cancel_asked = 0, reason = null,
    result = null, expires_at = null
where seq = :seq

-- name: note
-- An operator's action.
insert into hawser_audit (at, by, action, target, count, reason, about)
values (:at, :by, :action, :target, :count, :reason, :about)

-- name: audit
-- The latest actions, or the latest before one.
select seq, at, by, action, target, count, reason, about from hawser_audit
where seq < coalesce(:before, 9223372036854775807) and (:action is null or action = :action)
    and (:by is null or by = :by or substr(by, 1, length(:by) + 1) = :by || ':') order by seq desc limit :limit

-- name: forget_audit
-- Let go of actions of long ago.
delete from hawser_audit where at <= :before

-- name: pause
-- Pause a queue or task; a second pause replaces the first.
insert or replace into hawser_pause (kind, name, since, until, reason, by) values (:kind, :name, :since, :until, :reason, :by)

-- name: resume
-- End a pause.
delete from hawser_pause where kind = :kind and name = :name returning until

-- name: pauses
-- The pauses in force.
select kind, name, since, until, reason, by from hawser_pause where until is null or until > :now order by since, kind, name

-- name: forget_pauses
-- Let go of pauses that are over.
delete from hawser_pause where until <= :now

-- name: set_policy
-- How a queue's jobs are run; the attempts of new ones stand beside it, for enqueue.
insert into hawser_queue (queue, policy, max_attempts) values (:queue, :policy, :max_attempts)
on conflict (queue) do update set policy = excluded.policy, max_attempts = excluded.max_attempts

-- name: policy
-- The policy of a queue, if one is set.
select policy from hawser_queue where queue = :queue and policy is not null

-- name: policies
-- The policies that are set.
select queue, policy from hawser_queue where policy is not null

-- name: intake
-- What enqueue asks of a queue: how deep it may wait, and the attempts of a job that says nothing of them.
select queue, max_depth, max_attempts from hawser_queue where max_depth is not null or max_attempts is not null

-- name: tasks
-- The tasks that have finished jobs.
select task, sum(done) > 0, sum(dead) > 0, sum(cancelled) > 0 from hawser_depth where done or dead or cancelled group by task

-- name: prunable
-- Finished jobs of a task that are past their retention.
select seq, id, task, queue, priority, key from hawser_job indexed by hawser_job_finished
where task = :task and state = :state and finished_at is not null and finished_at <= :before order by finished_at limit :limit

-- name: forget_tallies
-- Remove tallies that no figure needs any more.
delete from hawser_tally where minute < :minute

-- name: forget_lanes
-- Let go of lanes that hold nothing.
delete from hawser_depth where fresh = 0 and timed = 0 and retrying = 0 and running = 0 and done = 0 and dead = 0 and cancelled = 0

-- name: forget_queues
-- Let go of queues that have no limit and no policy, and hold no keys.
delete from hawser_queue where max_depth is null and policy is null and keys = 0

-- name: beat
-- A worker lives.
insert into hawser_worker (worker, since, seen_at, about) values (?, ?, ?, ?)
on conflict (worker) do update set seen_at = excluded.seen_at, about = excluded.about

-- name: workers
-- The workers heard of lately.
select since, seen_at, about from hawser_worker where seen_at > :before order by since, worker

-- name: forget_worker
-- A worker has ended.
delete from hawser_worker where worker = ?

-- name: forget_workers
-- Let go of workers that fell silent.
delete from hawser_worker where seen_at <= :before
