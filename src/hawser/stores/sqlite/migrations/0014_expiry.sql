-- Jobs that are not started after a time: those that wait are found by it. Only jobs that have one stand in the index.
create index hawser_job_expires on hawser_job (expires_at) where expires_at is not null and state = 'ready';
