-- name: declined
-- What is known of a live job that was declined; nulls when nothing is, no row when the job is not live.
select d.lease, d.since, d.marks from hawser_job as j left join hawser_declined as d on d.id = j.id
where j.id = :id and j.state in ('ready', 'running')

-- name: keep_declined
-- A job was declined.
insert into hawser_declined (id, lease, since, marks) values (:id, :lease, :since, :marks)
on conflict (id) do update set lease = excluded.lease, since = excluded.since, marks = excluded.marks

-- name: forget_declined
-- Jobs that are not live any more.
delete from hawser_declined where not exists (
    select 1 from hawser_job as j where j.id = hawser_declined.id and j.state in ('ready', 'running')
)
