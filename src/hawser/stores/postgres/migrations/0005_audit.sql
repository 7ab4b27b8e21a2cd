-- What else is known of an action, as JSON: the filter, the operation, the jobs that it changed. Null in the records of workers of an
-- older release.
alter table hawser.audit add column about text;
