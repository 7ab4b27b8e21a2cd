-- KEYS[1]: prefix. ARGV: now.
-- Returns: now, and for each task its name, its breaker, when the next probe may start, and the lease and id of the last one ('' is none).
-- Reads all breakers.
-- uses:
local out = {num(now)}
for _, task in ipairs(call('HKEYS', P .. 'breakers')) do
  local about, probe = call('HGET', P .. 'breakers', task), call('HGET', P .. 'probes', task)
  local at, lease, id = 0, 0, ''
  if probe then
    local _
    at, _, lease = un('>I8I8I8', probe)
    id = sub(probe, 25)
  end
  out[#out + 1] = {task, about, num(at), num(lease), id}
end
return out
