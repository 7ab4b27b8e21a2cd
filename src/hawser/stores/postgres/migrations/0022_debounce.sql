-- Debounced jobs: the id of the call whose payload the job has, and when it is due at the latest. They go when the job does.
alter table hawser.job add column debounced_by uuid, add column debounce_until bigint;
