-- KEYS[1]: prefix. ARGV: now, id(16) lease(8), the step, its event, what its jobs came to; '' where not given.
-- Returns: the time; and the step as in record_steps.lua, or '' when the lease is not the current one.
-- Records what a wait of a run came to, as `stores/waits.py` decides it, with its start and its end, fenced.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending
note_time()
local id, lease, name, event = sub(ARGV[2], 1, 16), un('>I8', ARGV[2], 17), ARGV[3], ARGV[4] ~= '' and ARGV[4]
local h, r = look(id)
if not h or r.state ~= RUNNING or r.lease ~= lease then return {num(now), ''} end
local key = P .. 'steps:' .. id
local kept = call('HGET', key, name)
local step = kept and cmsgpack.unpack(kept)
if step and not is_open(step) then return {num(now), kept} end
local since, until_, kind, value, end_ = step and tonumber(step[5]) or now, step and step[7] and tonumber(step[7]), nil, nil, nil
if ARGV[5] ~= '' then kind, value, end_ = 'gather', ARGV[5], now
else
  local came = call('HGET', P .. 'events', event)
  came = came and cmsgpack.unpack(came)
  if came and (not until_ or tonumber(came[1]) <= until_) then kind, value, end_ = 'event', came[3], tonumber(came[1])
  elseif until_ and until_ <= now then kind, value, end_ = 'timeout', 'null', until_ end
end
if not kind then
  return {num(now), kept or cmsgpack.pack({0, name, 'wait', 'null', num(now), num(lease), false, event})}
end
if step then waits_no_more(id, step) end
local number = step and step[1] or call('HLEN', key) + 1
kept = cmsgpack.pack({number, name, kind, value, num(since), num(lease), num(math.max(since, end_)), event})
call('HSET', key, name, kept)
r.attempt, r.extra = 1, 1
put(id, r)
local l = lane(r.lane)
tally(l.q, l.t, 'steps')
if kind ~= 'gather' then tally(l.q, l.t, kind == 'timeout' and 'late' or 'came') end
flush()
return {num(now), kept}
