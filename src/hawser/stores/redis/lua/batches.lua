-- KEYS[1]: prefix. ARGV: now, then '=' and an id; or a state ('' is any), the id to go on behind ('' at first) and how many.
-- Returns: for each batch its id, the batch (msgpack), and how many of its members run.
-- Reads batches, newest first.
-- uses: records batches
local ids = {}
if ARGV[2] == '=' then ids = {ARGV[3]}
else
  local key = ARGV[2] == '' and P .. 'bs' or P .. 'bs:' .. ARGV[2]
  ids = call('ZREVRANGEBYLEX', key, ARGV[3] == '' and '+' or '(' .. ARGV[3], '-', 'LIMIT', 0, tonumber(ARGV[4]))
end

-- Among all runs: there are never more than slots.
local running = {}
for _, claim in ipairs(#ids > 0 and call('ZRANGE', P .. 'leases', 0, -1) or {}) do
  local joined = call('HGET', P .. 'c:' .. claim, 'ids') or ''
  for at = 1, #joined, 16 do
    local id = sub(joined, at, at + 15)
    local h, r, v = look(id)
    if h and r.state == RUNNING and num(r.claim) == claim then
      local batch = batches.of(v, h)
      if batch then running[batch] = (running[batch] or 0) + 1 end
      for _, other in ipairs(call('SMEMBERS', P .. 'bi:' .. id)) do running[other] = (running[other] or 0) + 1 end
    end
  end
end

local out = {}
for _, id in ipairs(ids) do
  local v = call('HGET', P .. 'batches', id)
  if v then out[#out + 1] = {id, v, running[id] or 0} end
end
return out
