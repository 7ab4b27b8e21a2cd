-- KEYS[1]: prefix. ARGV: now, how many beats, name and text of each, then the names of workers that have ended.
-- Returns: nothing.
-- Notes that workers live.
-- uses:
local count = tonumber(ARGV[2])
for i = 3, 2 + 2 * count, 2 do
  local v = call('HGET', P .. 'workers', ARGV[i])
  call('HSET', P .. 'workers', ARGV[i], cmsgpack.pack({v and cmsgpack.unpack(v)[1] or now, now, ARGV[i + 1]}))
end
for i = 3 + 2 * count, #ARGV do call('HDEL', P .. 'workers', ARGV[i]) end
