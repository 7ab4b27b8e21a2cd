-- name: recall_request
-- What was answered to a request, and whether it is forgotten: its time is over and none of its jobs is kept.
select digest, jobs, until <= :now and not exists (
    select 1 from hawser_job where id in (select value from json_each(r.jobs)))
from hawser_request as r where caller = :caller and key = :key

-- name: remember_request
-- Keep what was answered to a request; one that is forgotten makes way.
insert into hawser_request (caller, key, digest, jobs, until) values (:caller, :key, :digest, :jobs, :until)
on conflict (caller, key) do update set digest = excluded.digest, jobs = excluded.jobs, until = excluded.until

-- name: requests_over
-- The requests whose time was over first, and whether one of their jobs is kept.
select caller, key, exists (select 1 from hawser_job where id in (select value from json_each(r.jobs)))
from hawser_request as r indexed by hawser_request_until where until <= :now order by until limit :limit

-- name: look_at_request_later
-- A job of the request is kept.
update hawser_request set until = ? where caller = ? and key = ?

-- name: forget_request
-- Let go of a request.
delete from hawser_request where caller = ? and key = ?
