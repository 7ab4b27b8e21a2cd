-- name: any_dependency
-- Whether any job waits for another.
select 1 from hawser_dependency limit 1

-- name: states_of
-- How these jobs stand.
select id, state from hawser_job where id in (select value from json_each(:ids))

-- name: depend
-- A job waits for another.
insert into hawser_dependency (waiter, job, any_end) values (?, ?, ?)

-- name: hold_back
-- A new job waits for others: it is not due before it is released.
update hawser_job set held = ?, waits = ?, lane = ?, run_at = ? where id = ?

-- name: waiters
-- Who waits for these, for what of them, and how it is counted if that is a batch.
select d.job, d.waiter, d.any_end, d.counted from json_each(:ids) as w cross join hawser_dependency as d indexed by hawser_dependency_job
where d.job = w.value

-- name: no_longer_waits
-- A job waits for another no longer.
delete from hawser_dependency where waiter = ? and job = ?

-- name: still_waits
-- Whether a job waits for any other.
select 1 from hawser_dependency where waiter = ? limit 1

-- name: held_job
-- A held job as it stands.
select seq, queue, task, priority, group_name, held from hawser_job where id = ? and held is not null

-- name: release
-- A held job waits for no other any longer.
update hawser_job set held = null, waits = null, run_at = ? where seq = ?

-- name: forget_waits
-- A job waits no longer, also when what it waited for has not ended.
delete from hawser_dependency where waiter = ?

-- name: waits
-- For how many jobs a held job was made to wait, and for how many it still waits.
select j.waits, (select count(*) from hawser_dependency as d where d.waiter = j.id) from hawser_job as j where j.id = ? and j.waits is not null

-- name: waits_told
-- Some of the jobs that a held job waits for, oldest first, with their states.
select d.job, j.state, b.state, b.name from hawser_dependency as d left join hawser_job as j on j.id = d.job
left join hawser_batch as b on b.id = d.job where d.waiter = ? and coalesce(j.id, b.id) is not null order by d.job limit ?

-- name: missed
-- Jobs that others wait for although they have ended or are gone: a worker of the release before has ended them.
select d.job, j.state from hawser_dependency as d left join hawser_job as j on j.id = d.job
where (d.counted is null or d.counted = 'ready') and (j.state in ('done', 'cancelled') or (d.any_end = 1 and j.state = 'dead')
    or j.id is null and not exists (select 1 from hawser_batch as b where b.id = d.job)) limit ?

-- name: wait_instead
-- Those that wait for a job wait for another in its place.
update or ignore hawser_dependency set job = :instead where job = :job
