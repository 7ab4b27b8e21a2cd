-- KEYS[1]: prefix. ARGV: now, then for each step id(16) lease(8), its name, its kind, its value, and how many microseconds a sleep lasts
-- ('' for none).
-- Returns: the time; for each step what is kept under its name (msgpack), or '' when the lease is not the current one.
-- Keeps what runs have achieved, fenced; the first record under a name stays, and attempts are counted from a new one on.
-- uses: counts lanes fresh_lists records turns clock
local out = {}
note_time()
for i = 2, #ARGV, 5 do
  local id, lease, name = sub(ARGV[i], 1, 16), un('>I8', ARGV[i], 17), ARGV[i + 1]
  local h, r = look(id)
  if not h or r.state ~= RUNNING or r.lease ~= lease then
    out[#out + 1] = ''
  else
    local key = P .. 'steps:' .. id
    local kept = call('HGET', key, name)
    if not kept then
      local lasts, number = tonumber(ARGV[i + 4]), call('HLEN', key) + 1
      kept = cmsgpack.pack({number, name, ARGV[i + 2], ARGV[i + 3], num(now), num(lease), lasts and num(now + lasts) or false, false})
      call('HSET', key, name, kept)
      r.attempt, r.extra = 1, 1
      put(id, r)
      local l = lane(r.lane)
      tally(l.q, l.t, 'steps')
    end
    out[#out + 1] = kept
  end
end
flush()
return {num(now), out}
