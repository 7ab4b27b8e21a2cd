-- What else is known of an action, as JSON: the filter, the operation, the jobs that it changed.
alter table hawser_audit add column about text;
