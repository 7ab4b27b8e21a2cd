-- KEYS[1]: prefix. ARGV: now, id, text, microseconds for which one is remembered.
-- Returns: the texts of all declarations that living workers make, oldest first.
-- Notes that a living worker makes a declaration.
-- uses:
local kept, living, known = tonumber(ARGV[4]), {}, false
local all = call('HGETALL', P .. 'declarations')
for i = 1, #all, 2 do
  -- Place, last mention, text.
  local d = cmsgpack.unpack(all[i + 1])
  local mine, seen = all[i] == ARGV[2], min(d[2], now)
  if now - seen >= kept then
    call('HDEL', P .. 'declarations', all[i])
  else
    if mine then known, seen = true, now end
    if seen ~= d[2] then call('HSET', P .. 'declarations', all[i], cmsgpack.pack({d[1], seen, d[3]})) end
    living[#living + 1] = d
  end
end
if not known then
  local d = {call('INCR', P .. 'declared'), now, ARGV[3]}
  call('HSET', P .. 'declarations', ARGV[2], cmsgpack.pack(d))
  living[#living + 1] = d
end
table.sort(living, function(a, b) return a[1] < b[1] end)
local out = {}
for i, d in ipairs(living) do out[i] = d[3] end
return out
