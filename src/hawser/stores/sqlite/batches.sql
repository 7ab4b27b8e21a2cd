-- name: add_batch
-- A new batch.
insert into hawser_batch (id, name, parent, created_at, then_job, success_job, dead_job) values (?, ?, ?, ?, ?, ?, ?)

-- name: batch_standings
-- How these batches stand: state, whether one of the members died, whether it was cancelled, whether it has ever ended.
select id, state, died, cancelled, ended_at is not null from hawser_batch where id in (select value from json_each(:ids))

-- name: waits_behind
-- A batch and what waits for it, directly or over others: who waits for a job or a batch, what counts either, and the batch of a job.
with recursive behind (id) as (
    select :batch
    union select d.waiter from behind as b cross join hawser_dependency as d indexed by hawser_dependency_job where d.job = b.id
    union select j.batch from behind as b cross join hawser_job as j where j.id = b.id and j.batch is not null and j.state in ('ready', 'running')
)
select id from behind limit :limit

-- name: may_wait
-- Those of these that may wait for others: held jobs, and batches.
select id from hawser_job where id in (select value from json_each(:ids)) and held is not null
union all select id from hawser_batch where id in (select value from json_each(:ids))

-- name: count_members
-- Members come to other states.
update hawser_batch set members = members + :members, done = done + :done, dead = dead + :dead, given_up = given_up + :cancelled,
    died = max(died, :died) where id = :id
returning state, closed, members - done - dead - given_up, dead, given_up, died

-- name: stand_otherwise
-- A batch stands otherwise than before.
update hawser_batch set state = :state, ended_at = coalesce(:ended_at, ended_at) where id = :id

-- name: close_batch
-- Its producer adds no more.
update hawser_batch set closed = 1 where id = ? and not closed

-- name: cancel_batch
-- A batch is to be cancelled: none of its members has been looked at.
update hawser_batch set closed = 1, cancelled = 1, reason = ?, by = ?, cancelling = '' where id = ? and cancelling is null

-- name: cancelling
-- A batch of which members are still to be cancelled.
select id, reason, by, cancelling from hawser_batch where cancelling is not null limit 1

-- name: cancelled_up_to
-- Up to this member all were looked at; null when these were all.
update hawser_batch set cancelling = ? where id = ?

-- name: members_behind
-- The next members of a batch.
select id from hawser_job indexed by hawser_job_batch where batch = ? and id > ? order by id limit ?

-- name: batches_inside
-- The batches inside one that have not ended.
select id from hawser_dependency as d cross join hawser_batch as b where d.waiter = ? and b.id = d.job and b.state in ('open', 'running')

-- name: leave_batch
-- A job is no member any longer: another has taken its place.
update hawser_job set batch = null where seq = ?

-- name: is_member
-- Whether a job counts in a batch, as one of its own or as one that holds a key.
select 1 from hawser_job where id = :job and batch = :batch union all select 1 from hawser_dependency where waiter = :batch and job = :job

-- name: count_other
-- A batch counts what is not its own job.
insert into hawser_dependency (waiter, job, any_end, counted) values (?, ?, 1, ?)

-- name: counted_as
-- It is counted in another state.
update hawser_dependency set counted = ? where waiter = ? and job = ?

-- name: batch
-- One batch, and how many of its members run.
select b.id, name, parent, created_at, closed, cancelled, reason, ended_at, members, done, dead, given_up, then_job, success_job, dead_job,
    (select count(*) from hawser_job as j indexed by hawser_job_running where j.state = 'running' and j.batch = b.id)
    + (select count(*) from hawser_dependency as d cross join hawser_job as j
        where d.waiter = b.id and d.counted = 'ready' and j.id = d.job and j.state = 'running')
from hawser_batch as b where b.id = :id

-- name: batch_ids
-- Batches in a state, or all, newest first.
select id from hawser_batch where (:state is null or state = :state) and id < :after order by id desc limit :limit

-- name: live_batches
-- How many batches are in a state.
select count(*) from hawser_batch where state = ?

-- name: old_batches
-- Batches that ended long ago.
select id, died from hawser_batch where state = ? and ended_at <= ? limit ?

-- name: remove_batch
-- Forget a batch.
delete from hawser_batch where id = ?

-- name: uncounted
-- Running batches whose members have ended without a word: how many, and how many more of all members are dead or cancelled than it counts. Those of
-- which more than some have not ended are passed over: they are far from their end.
select c.id, c.unended - c.own - c.others,
    (select count(*) from hawser_job as j indexed by hawser_job_batch where j.batch = c.id and j.state = 'dead')
        + (select count(*) from hawser_dependency as d where d.waiter = c.id and d.counted = 'dead') - c.dead,
    (select count(*) from hawser_job as j indexed by hawser_job_batch where j.batch = c.id and j.state = 'cancelled')
        + (select count(*) from hawser_dependency as d where d.waiter = c.id and d.counted = 'cancelled') - c.given_up
from (
    select b.id, b.members - b.done - b.dead - b.given_up as unended, b.dead, b.given_up,
        (select count(*) from (
            select 1 from hawser_job as j indexed by hawser_job_live_member
            where j.batch = b.id and j.batch is not null and j.state in ('ready', 'running') limit :most
        )) as own,
        (select count(*) from hawser_dependency as d where d.waiter = b.id and d.counted = 'ready') as others
    from hawser_batch as b where b.state = 'running'
) as c where c.own < :most and c.unended > c.own + c.others limit :limit
