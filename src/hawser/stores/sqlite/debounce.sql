-- name: debounced
-- The debounced job that holds a key: the call whose payload it has, when it is due at the latest, whether it was ever given out.
select k.job_id, k.newest, k.put_off_until, j.lease > 0 from hawser_key as k join hawser_job as j on j.id = k.job_id
where k.queue = :queue and k.task = :task and k.key = :key and k.newest is not null

-- name: note_debounced
-- The job that holds this key has the payload of that call.
update hawser_key set newest = :newest, put_off_until = :until where queue = :queue and task = :task and key = :key

-- name: replaced_by
-- The job that holds this key has the payload of another call now.
update hawser_key set newest = :newest where queue = :queue and task = :task and key = :key

-- name: replace_payload
-- A job that waits gets another payload, and another place among those that wait.
update hawser_job set body = :body, indexed = :indexed, expires_at = :expires_at, run_at = :run_at, lane = :lane where seq = :seq
