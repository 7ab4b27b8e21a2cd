-- KEYS[1]: prefix. ARGV: now, id, how many of the jobs that it waits for are named.
-- Returns: nothing when the job is not held; else for how many jobs it was made to wait, for how many it waits, and id, state and name (of a batch) of some.
-- Says what a held job waits for.
-- uses: records batches
local LOOKED_AT = 1000
local id = ARGV[2]
local about = held_of(id)
if not about or about[2] == 0 then return {} end
local left = call('SCARD', P .. 'd:' .. id)
local some = left > LOOKED_AT and call('SRANDMEMBER', P .. 'd:' .. id, LOOKED_AT) or call('SMEMBERS', P .. 'd:' .. id)
table.sort(some)
local out = {about[2], left}
for i = 1, min(#some, tonumber(ARGV[3])) do
  local h, r = look(some[i])
  local b = not h and batches.read(some[i])
  out[#out + 1] = some[i]
  out[#out + 1] = h and r.state or b and batches.job_state(b) or DONE
  out[#out + 1] = b and b.name or ''
end
return out
