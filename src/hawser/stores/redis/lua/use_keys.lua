-- KEYS[1]: prefix. ARGV: now, then ids of API keys.
-- Returns: nothing.
-- Notes that these keys were used.
-- uses:
for i = 2, #ARGV do
  local v = call('HGET', P .. 'apikeys', ARGV[i])
  if v then
    local key = cmsgpack.unpack(v)
    key[5] = now
    call('HSET', P .. 'apikeys', ARGV[i], cmsgpack.pack(key))
  end
end
