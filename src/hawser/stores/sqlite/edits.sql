-- name: change
-- A waiting job goes to another place among those that wait.
update hawser_job set queue = :queue, priority = :priority, lane = :lane, run_at = :run_at where seq = :seq

-- name: held_until
-- Until when a job holds its key; no row when another job does.
select until from hawser_key where queue = :queue and task = :task and key = :key and job_id = :job_id

-- name: let_go
-- A job holds its key no longer, also within its window.
delete from hawser_key where queue = :queue and task = :task and key = :key and job_id = :job_id

-- name: last_error
-- The error of the last attempt of a job that has one.
select error from hawser_attempt where job = :seq and error is not null order by lease desc limit 1

-- name: end_leases
-- The leases of a worker end now. When each was last lengthened stays known.
update hawser_job indexed by hawser_job_running set leased_for = max(0, leased_for - (lease_until - :now)), lease_until = :now
where state = 'running' and lease_until > :now and worker = :worker
