-- Room for what jobs will have: the group that a job belongs to and its place among the groups that wait, the time after which it is not
-- run, whether it belongs to a batch, and what no statement reads, in one packed value. All are null: no row is written. Tables and
-- indexes come with what uses them: to make those changes no statement that runs today.
alter table hawser.job add column line integer, add column group_name text, add column expires_at bigint, add column batch boolean,
    add column packed bytea;
alter table hawser.done add column group_name text, add column expires_at bigint, add column batch boolean, add column packed bytea;
alter table hawser.failed add column group_name text, add column expires_at bigint, add column batch boolean, add column packed bytea;
