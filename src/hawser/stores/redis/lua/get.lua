-- KEYS[1]: prefix. ARGV: now, id.
-- Returns: the whole job as in views.lua, or nothing.
-- Reads one job.
-- uses: counts lanes records due_times views
local k = bucket(ARGV[2])
local v = call('HGET', P .. 'b:' .. k, ARGV[2])
if not v then return {} end
return view(ARGV[2], v, call('HGET', P .. 'm:' .. k, ARGV[2]))
