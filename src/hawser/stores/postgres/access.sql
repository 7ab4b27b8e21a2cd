-- name: put_api_key
-- A new key; one that is there stays as it is.
insert into hawser.api_key (id, about, created_at, expires_at) select $2, $3, n.now, n.now + $4::bigint
from (select hawser.now($1) as now) as n on conflict (id) do nothing returning id

-- name: api_keys
-- All keys, oldest first, and the time.
select hawser.now($1), about, created_at, expires_at, revoked_at, used_at from hawser.api_key order by created_at, id

-- name: revoke_api_key
-- End a key, once.
update hawser.api_key set revoked_at = hawser.now($1) where id = $2 and revoked_at is null returning id

-- name: use_api_keys
-- Keys were used.
update hawser.api_key set used_at = hawser.now($1) where id = any($2::text[])
