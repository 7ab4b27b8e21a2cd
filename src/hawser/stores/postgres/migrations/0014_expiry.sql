-- Jobs that are not started after a time: found by it. Only jobs that have one stand in the index.
create index concurrently if not exists job_expires on hawser.job (expires_at) where expires_at is not null;

-- Whether any job here ever had such a time: claims where none had do not look for those that are past it.
alter table hawser.control add column expiries boolean not null default false;
