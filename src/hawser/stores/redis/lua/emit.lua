-- KEYS[1]: prefix. ARGV: now, name, what it says, microseconds that it is kept.
-- Returns: whether it is the first of its name, when the first came, whether that says the same, whether some are still to be woken.
-- Keeps an event, and wakes the jobs that wait for it.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies waiting
note_time()
local name, body = ARGV[2], ARGV[3]
local known = call('HGET', P .. 'events', name)
if known then
  local came_at, _, said = unpack(cmsgpack.unpack(known))
  return {0, came_at, said == body and 1 or 0, call('EXISTS', P .. 'await:' .. name)}
end
local until_ = num(now + tonumber(ARGV[4]))
call('HSET', P .. 'events', name, cmsgpack.pack({num(now), until_, body}))
call('ZADD', P .. 'eventends', until_, name)
tally('', '', 'emitted')
wake_for(name)
flush()
call('PUBLISH', P .. 'wake', '')
return {1, num(now), 1, call('EXISTS', P .. 'await:' .. name)}
