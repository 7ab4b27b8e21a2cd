-- name: start_bulk
-- A new operation; one that is there stays as it is.
insert into hawser.bulk (id, plan, state, owner, turn, started_at, seen_at)
select $2, $3, 'running', $4, 1, n.now, n.now from (select hawser.now($1) as now) as n on conflict (id) do nothing

-- name: bulk
-- One operation, and the time.
select hawser.now($1), id::text, plan, state, owner, turn, cursor, done, skipped, error, started_at, seen_at, ended_at
from hawser.bulk where id = $2

-- name: bulks
-- The latest operations, newest first, and the time.
select hawser.now($1), id::text, plan, state, owner, turn, cursor, done, skipped, error, started_at, seen_at, ended_at
from hawser.bulk order by id desc limit $2

-- name: current_bulk
-- The plan of an operation, when a step of it may be written now; locked until it is.
select plan from hawser.bulk where id = $1 and state = 'running' and turn = $2 and cursor is not distinct from $3 for update

-- name: step_bulk
-- A step was done.
update hawser.bulk as b set cursor = $3, done = b.done + $4, skipped = b.skipped + $5, state = coalesce($6, b.state), error = $7,
    seen_at = n.now, ended_at = case when $6 is not null then n.now end
from (select hawser.now($1) as now) as n where b.id = $2

-- name: take_bulks
-- Operations that no process runs any more go to this one.
with clock as materialized (select hawser.now($1) as now),
silent as materialized (
    select b.id from hawser.bulk as b where b.state = 'running' and abs((select now from clock) - b.seen_at) >= $4
    order by b.id limit $3 for update of b skip locked
)
update hawser.bulk as b set owner = $2, turn = b.turn + 1, seen_at = c.now from silent as s, clock as c where b.id = s.id
returning c.now, b.id::text, b.plan, b.state, b.owner, b.turn, b.cursor, b.done, b.skipped, b.error, b.started_at, b.seen_at, b.ended_at

-- name: release_bulk
-- Another process may go on with it at once.
update hawser.bulk set seen_at = hawser.now($1) - $4 where id = $2 and turn = $3 and state = 'running'

-- name: stop_bulk
-- End a running operation.
update hawser.bulk set state = 'stopped', ended_at = hawser.now($1) where id = $2 and state = 'running' returning id

-- name: forget_bulks
-- Operations that ended long ago.
delete from hawser.bulk where ended_at <= hawser.now($1) - $2
