-- The arguments that a job is found by, as a JSON list of at most three texts `name=value`.
alter table hawser.job add column indexed text;
alter table hawser.done add column indexed text;
alter table hawser.failed add column indexed text;
