-- Room for what jobs will have: the group that a job belongs to and its place among the groups that wait, the time after which it is not
-- run, whether it belongs to a batch, and what no statement reads, in one packed value. All are null: no row is written. Indexes come
-- with what uses them; the index that claims read stays as it is, for workers of the release before name it.
alter table hawser_job add column line integer;
alter table hawser_job add column group_name text;
alter table hawser_job add column expires_at integer;
alter table hawser_job add column batch integer;
alter table hawser_job add column packed blob;
