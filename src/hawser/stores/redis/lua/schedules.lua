-- KEYS[1]: prefix. ARGV: now, name to go on behind, limit (-1 is all), then names; none: all of them.
-- Returns: the texts of the schedules, in order of their names.
-- Reads schedules.
-- uses:
local names, out = {}, {}
if ARGV[4] then
  for i = 4, #ARGV do names[#names + 1] = ARGV[i] end
else
  names = call('ZRANGEBYLEX', P .. 'schedulenames', ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
end
for _, name in ipairs(names) do
  local text = call('HGET', P .. 'schedules', name)
  if text then out[#out + 1] = text end
end
return out
