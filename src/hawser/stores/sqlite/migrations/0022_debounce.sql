-- Debounced jobs: the id of the call whose payload the job has that holds a key, and when it is due at the latest.
alter table hawser_key add column newest text;
alter table hawser_key add column put_off_until integer;
