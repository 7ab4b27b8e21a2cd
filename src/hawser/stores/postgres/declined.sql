-- name: note_declined
-- Live jobs that were declined for the first time.
insert into hawser.declined (id, lease, since, marks)
select w.id, w.lease, hawser.now($1), '[]' from unnest($2::uuid[], $3::bigint[]) as w(id, lease)
where exists (select from hawser.job as j where j.id = w.id) order by w.id on conflict (id) do nothing

-- name: declined
-- What is known of live jobs that were declined, locked, and the time.
select hawser.now($1), d.id::text, d.lease, d.since, d.marks from hawser.declined as d
where d.id = any($2::uuid[]) and exists (select from hawser.job as j where j.id = d.id) order by d.id for update of d

-- name: keep_declined
-- Jobs were declined.
update hawser.declined as d set lease = w.lease, since = w.since, marks = w.marks
from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) as w(id, lease, since, marks) where d.id = w.id

-- name: forget_declined
-- Jobs that are not live any more.
delete from hawser.declined as d where not exists (select from hawser.job as j where j.id = d.id)
