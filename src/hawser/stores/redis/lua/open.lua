-- KEYS[1]: prefix. ARGV: now, the version of the schema, what fresh lanes are kept in, then names and types of keys.
-- Returns: 'made', 'stands', or 'version' or 'lanes' and what stands there, or 'type' and the name of a key of another type.
-- Makes the store when it is missing; refuses what is not ours.
-- uses:
call('PUBLISH', P .. 'opened', '') -- without the right to its channels a script would fail in its end, with everything written
for i = 4, #ARGV, 2 do
  local found = call('TYPE', P .. ARGV[i]).ok
  if found ~= 'none' and found ~= ARGV[i + 1] then return {'type', ARGV[i], found} end
end
local version = call('GET', P .. 'schema')
if not version then
  call('SET', P .. 'schema', ARGV[2])
  call('SET', P .. 'lanekind', ARGV[3])
  -- A replica that is promoted before the first claim must know that another server may have claimed.
  call('HSET', P .. 'epoch', 'server', match(call('INFO', 'replication'), 'master_replid:(%w+)'), 'base', 0, 'since', num(now))
elseif version ~= ARGV[2] then
  return {'version', version}
end
local kind = call('GET', P .. 'lanekind') or 'lists'
if kind ~= ARGV[3] then return {'lanes', kind} end
return {version and 'stands' or 'made'}
