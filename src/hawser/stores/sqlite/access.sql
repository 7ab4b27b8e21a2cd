-- name: put_api_key
-- A new key; one that is there stays as it is.
insert into hawser_api_key (id, about, created_at, expires_at) values (:id, :about, :now, :expires_at) on conflict do nothing

-- name: api_keys
-- All keys, oldest first.
select about, created_at, expires_at, revoked_at, used_at from hawser_api_key order by created_at, id

-- name: revoke_api_key
-- End a key, once.
update hawser_api_key set revoked_at = :now where id = :id and revoked_at is null

-- name: use_api_key
-- A key was used.
update hawser_api_key set used_at = ? where id = ?
