-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts by which jobs end that others wait for.
-- Goes on with the jobs that wait for those that ended.
-- A held job stands in the hash `held` (what is kept of its own time, for how many jobs it waits, whether any end will do) and, with a
-- due time far ahead, in its lane. `d:` has the jobs that it still waits for, `w:` the jobs that wait for one.
local function uuid(id)
  local hex = string.gsub(id, '.', function(c) return fmt('%02x', byte(c)) end)
  return sub(hex, 1, 8) .. '-' .. sub(hex, 9, 12) .. '-' .. sub(hex, 13, 16) .. '-' .. sub(hex, 17, 20) .. '-' .. sub(hex, 21)
end

local function release(id, hold)
  local h, r = look(id)
  local due = hold >= 0 and now + hold or max(now, -hold)
  no_longer_held(id, lane(r.lane).q)
  r.run_at = due
  call('ZADD', place(r.lane, r.kind), num(due), pk('>I8', h.seq) .. id)
  put(id, r)
end

local function cancel_held(id, reason)
  local h, r, v = look(id)
  local l = lane(r.lane)
  call('ZREM', place(r.lane, r.kind), pk('>I8', h.seq) .. id)
  waits(r.lane, r.kind, -1)
  r.state = CANCELLED
  set_extra(id, r, 'reason', reason)
  tally(l.q, l.t, 'cancelled')
  finish(id, r, h, v)
  put(id, r)
end

-- Go on with the jobs that wait for those that came to their end in this script, and so on down.
local function go_on()
  local i, some = 1, #over > 0
  while i <= #over do
    local id, state, why = unpack(over[i])
    for _, waiter in ipairs(call('SMEMBERS', P .. 'w:' .. id)) do
      local about = held_of(waiter)
      if about and is_over(state, about[3]) then
        call('SREM', P .. 'd:' .. waiter, id)
        if call('EXISTS', P .. 'd:' .. waiter) == 0 then release(waiter, about[1]) end
      elseif about and state == CANCELLED then
        cancel_held(waiter, 'it waited for job ' .. uuid(id) .. ', which ' .. why)
      end
    end
    if state ~= DEAD then call('UNLINK', P .. 'w:' .. id) end
    i = i + 1
  end
  over = {}
  return some
end

-- Cancel new jobs that wait for a job that is cancelled or not there.
local function cancel_doomed()
  for _, d in ipairs(doomed) do cancel_held(d[1], 'it waited for job ' .. uuid(d[2]) .. ', which ' .. d[3]) end
  doomed = {}
end
