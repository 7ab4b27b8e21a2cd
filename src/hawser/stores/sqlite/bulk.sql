-- name: start_bulk
-- A new operation; one that is there stays as it is.
insert into hawser_bulk (id, plan, state, owner, turn, started_at, seen_at)
values (:id, :plan, 'running', :owner, 1, :now, :now) on conflict do nothing

-- name: bulk
-- One operation.
select id, plan, state, owner, turn, cursor, done, skipped, error, started_at, seen_at, ended_at from hawser_bulk where id = :id

-- name: bulks
-- The latest operations, newest first.
select id, plan, state, owner, turn, cursor, done, skipped, error, started_at, seen_at, ended_at from hawser_bulk
order by id desc limit :limit

-- name: current_bulk
-- The plan of an operation, when a step of it may be written now.
select plan from hawser_bulk where id = :id and state = 'running' and turn = :turn and cursor is :behind

-- name: step_bulk
-- A step was done.
update hawser_bulk set cursor = :cursor, done = done + :did, skipped = skipped + :skipped, state = coalesce(:ends, state),
    error = :error, seen_at = :now, ended_at = case when :ends is not null then :now end
where id = :id

-- name: take_bulks
-- Operations that no process runs any more go to this one.
update hawser_bulk set owner = :owner, turn = turn + 1, seen_at = :now
where id in (
    select id from hawser_bulk where state = 'running' and abs(:now - seen_at) >= :silence order by id limit :limit
)
returning id, plan, state, owner, turn, cursor, done, skipped, error, started_at, seen_at, ended_at

-- name: release_bulk
-- Another process may go on with it at once.
update hawser_bulk set seen_at = :now - :silence where id = :id and turn = :turn and state = 'running'

-- name: stop_bulk
-- End a running operation.
update hawser_bulk set state = 'stopped', ended_at = :now where id = :id and state = 'running'

-- name: forget_bulks
-- Operations that ended long ago.
delete from hawser_bulk where ended_at <= :before
