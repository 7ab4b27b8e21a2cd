-- name: record_step
-- What a run has achieved, unless its name is taken.
insert into hawser_step (job, name, kind, value, at, lease, until) values (?, ?, ?, ?, ?, ?, ?) on conflict (job, name) do nothing

-- name: recorded_step
-- What is kept under a name.
select name, kind, value, at, lease, until, event from hawser_step where job = ? and name = ?

-- name: count_from_step
-- The run that made a step is the first attempt again.
update hawser_job set attempt = 1 where seq = ? and attempt > 1

-- name: steps
-- The steps of a job, in the order of their records.
select s.name, s.kind, s.value, s.at, s.lease, s.until, s.event from hawser_job as j join hawser_step as s on s.job = j.seq
where j.id = :id order by s.seq

-- name: place_of_step
-- Where a step stands in the order of records.
select seq from hawser_step where job = ? and name = ?

-- name: forget_later_steps
-- Forget what was recorded after a place.
delete from hawser_step where job = ? and seq > ?

-- name: remove_steps
-- Forget the steps of a job that is removed.
delete from hawser_step where job = ?
