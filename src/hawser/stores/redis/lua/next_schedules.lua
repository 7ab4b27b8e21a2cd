-- KEYS[1]: prefix. ARGV: now, limit.
-- Returns: the texts of schedules.
-- Reads the schedules whose time comes first, in that order.
-- uses:
local out = {}
for _, name in ipairs(call('ZRANGE', P .. 'scheduledue', 0, tonumber(ARGV[2]) - 1)) do
  out[#out + 1] = call('HGET', P .. 'schedules', name)
end
return out
