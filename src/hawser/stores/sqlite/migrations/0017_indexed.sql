-- The arguments that a job is found by, as a JSON list of at most three texts `name=value`.
alter table hawser_job add column indexed text;
