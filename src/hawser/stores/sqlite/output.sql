-- name: last_chunk
-- The last chunk of a job's output.
select number, total, lease, place from hawser_output where job = ? order by number desc limit 1

-- name: add_chunk
-- A chunk behind the last one.
insert into hawser_output (job, number, total, lease, place, attempt, at, body) values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: output
-- Chunks of a job behind a number, in order.
select o.number, o.body, o.at, o.lease, o.attempt from hawser_job as j join hawser_output as o on o.job = j.seq
where j.id = :id and o.number > :after order by o.number limit :limit

-- name: remove_output
-- Forget the output of a job that is removed.
delete from hawser_output where job = ?
