-- KEYS[1]: prefix. ARGV: now, how many beats, name and text of each, then the names of workers that have ended.
-- Returns: as outlook.lua: who gives signs of life needs no look of his own.
-- Notes that workers live. Each write costs a sync, so one that says nothing new is left out while the last is young.
-- uses: counts lanes became_due upkeep_times
local YOUNG = 12000000
local count = tonumber(ARGV[2])
for i = 3, 2 + 2 * count, 2 do
  local v = call('HGET', P .. 'workers', ARGV[i])
  local since, seen, text = unpack(v and cmsgpack.unpack(v) or {now, 0, ''}, 1, 3)
  if text ~= ARGV[i + 1] or now - seen >= YOUNG or now < seen then
    call('HSET', P .. 'workers', ARGV[i], cmsgpack.pack({since, now, ARGV[i + 1]}))
  end
end
for i = 3 + 2 * count, #ARGV do call('HDEL', P .. 'workers', ARGV[i]) end
return upkeep_times()
