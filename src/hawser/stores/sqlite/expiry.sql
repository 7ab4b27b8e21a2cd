-- name: any_past_expiry
-- Whether a job waits that is past its expiry.
select exists (
    select 1 from hawser_job indexed by hawser_job_expires where expires_at is not null and state = 'ready' and expires_at <= :now)

-- name: past_expiry
-- The jobs that wait and are past their expiry, the longest ago first.
select seq, id, task, queue, priority, state, lane, attempt, lease, key, key_ttl, run_at, group_name, held, batch
from hawser_job indexed by hawser_job_expires where expires_at is not null and state = 'ready' and expires_at <= :now
order by expires_at limit :limit
