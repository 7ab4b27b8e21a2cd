-- KEYS[1]: prefix. ARGV: now, then the ids.
-- Returns: for each its state (-1: unknown job), task, error or reason ('' when not given), result (the same).
-- Says how jobs ended.
-- uses: counts lanes records
local out = {}

local function last_error(id)
  local history = call('LRANGE', P .. 'h:' .. id, 0, -1)
  for i = #history, 1, -1 do
    local error_ = cmsgpack.unpack(history[i])[7]
    if error_ and error_ ~= '' then return error_ end
  end
  return nil
end

for i = 2, #ARGV do
  local id = ARGV[i]
  local h, r = look(id)
  local error_, result
  if h and r.extra == 1 then
    if r.state == DEAD then error_ = last_error(id) end
    if r.state == DEAD or r.state == CANCELLED then error_ = error_ or call('HGET', P .. 'o:' .. id, 'reason') end
    if r.state == DONE then result = call('HGET', P .. 'o:' .. id, 'result') end
  end
  out[#out + 1] = {h and r.state or -1, h and lane(r.lane).t or '', error_ or '', result or ''}
end
return out
