-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that hold or wake jobs in the middle of their handlers.
-- A wait is a step that came to nothing yet. Its members stand in `await:` of its event and, with a time, in `deadlines`: id(16), name.
-- `stirred` has the events that have more to wake than one script should.
local WAKES = 1000

-- Gives the end of its time, if it has one.
local function note_wait(id, r, name, event, lasts, value)
  local key = P .. 'steps:' .. id
  local kept, step = call('HGET', key, name), nil
  if kept then
    step = cmsgpack.unpack(kept)
    if not is_open(step) then return end
    step[3], step[4], step[8] = 'wait', value, event
  else
    step = {call('HLEN', key) + 1, name, 'wait', value, num(now), num(r.lease), lasts and num(now + lasts) or false, event}
  end
  call('HSET', key, name, cmsgpack.pack(step))
  set_extra(id, r, 'waited', '1')
  if event then call('INCRBY', P .. 'awaiting', call('SADD', P .. 'await:' .. event, id .. name)) end
  if step[7] then call('ZADD', P .. 'deadlines', step[7], id .. name) end
  return step[7] and tonumber(step[7])
end

-- The first of these jobs that cannot be waited for, else those that are not done.
local function upstream_left(ids)
  local left = {}
  for _, hex in ipairs(ids) do
    local job = string.gsub(hex, '..', function(two) return char(tonumber(two, 16)) end)
    local h, r = look(job)
    if not h then return {job, 'this store does not have'} end
    if r.state == CANCELLED then return {job, 'is cancelled'} end
    if r.state ~= DONE then left[#left + 1] = job end
  end
  return nil, left
end

-- A wait is over: its job may go on, if it is held for an event.
local function wake(member)
  local id, name = sub(member, 1, 16), sub(member, 17)
  local kept = call('HGET', P .. 'steps:' .. id, name)
  local step = kept and cmsgpack.unpack(kept)
  if not step or step[3] ~= 'wait' then return end
  step[3] = 'woken'
  call('HSET', P .. 'steps:' .. id, name, cmsgpack.pack(step))
  call('ZREM', P .. 'deadlines', member)
  if step[8] then awaits_no_more('SMOVE', step[8], P .. 'woken:' .. step[8], member) end
  local about = held_of(id)
  if about and about[2] == 0 then
    local _, r = look(id)
    local l = lane(r.lane)
    release(id, about[1])
    tally(l.q, l.t, 'woken')
  end
end

-- Hold a job that has just left running, unless what it waits for has come.
local function hold_run(id, hold)
  local name, event, ids, lasts, value = unpack(hold, 1, 5)
  local _, r = look(id)
  local until_ = note_wait(id, r, name, event, lasts, value)
  put(id, r)
  any_held = true
  call('HSET', P .. 'held', id, cmsgpack.pack({0, #ids, false}))
  add('s', lane(r.lane).q .. '|held', 1)
  if event then
    if call('HEXISTS', P .. 'events', event) == 1 or (until_ and until_ <= now) then wake(id .. name) end
    return
  end
  local doomed_by, left = upstream_left(ids)
  if doomed_by then
    cancel_held(id, 'it waited for job ' .. uuid(doomed_by[1]) .. ', which ' .. doomed_by[2])
  elseif #left == 0 then
    release(id, 0)
  else
    many('SADD', P .. 'd:' .. id, left)
    for _, job in ipairs(left) do call('SADD', P .. 'w:' .. job, id) end
  end
end

-- Wake those who wait for an event that has come; what is left is for the next script.
local function wake_for(event)
  local key = P .. 'await:' .. event
  for _, member in ipairs(call('SRANDMEMBER', key, WAKES)) do
    wake(member)
    awaits_no_more('SMOVE', event, P .. 'woken:' .. event, member)
  end
  if call('EXISTS', key) == 1 then call('SADD', P .. 'stirred', event) else call('SREM', P .. 'stirred', event) end
end

-- Wake those whose time is over, and those that earlier scripts have left; whether there were any, and whether there may be more.
local function wake_rest()
  local over_time = call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', num(now), 'LIMIT', 0, WAKES)
  for _, member in ipairs(over_time) do
    wake(member)
    call('ZREM', P .. 'deadlines', member)
  end
  local event = call('SRANDMEMBER', P .. 'stirred')
  if event then wake_for(event) end
  return #over_time > 0 or (event and true or false), #over_time == WAKES or call('EXISTS', P .. 'stirred') == 1
end
