-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts by which jobs end that others wait for.
-- Goes on with the jobs that wait for those that ended.
-- A held job stands in the hash `held` (what is kept of its own time, for how many jobs it waits, whether any end will do) and, with a
-- due time far ahead, in its lane. `d:` has the jobs that it still waits for, `w:` the jobs that wait for one.
local function uuid(id)
  local hex = string.gsub(id, '.', function(c) return fmt('%02x', byte(c)) end)
  return sub(hex, 1, 8) .. '-' .. sub(hex, 9, 12) .. '-' .. sub(hex, 13, 16) .. '-' .. sub(hex, 17, 20) .. '-' .. sub(hex, 21)
end

-- What a script has left of a job that it broke off with.
function batches.forget_orphan(id)
  call('HDEL', P .. 'held', id)
  call('UNLINK', P .. 'd:' .. id)
end

local function release(id, hold)
  local h, r, v = look(id)
  if not h then return batches.forget_orphan(id) end
  local due, member = hold >= 0 and now + hold or max(now, -hold), pk('>I8', h.seq) .. id
  no_longer_held(id, lane(r.lane).q)
  r.run_at = due
  if UNGROUPED[r.kind] then
    join_members(r.lane, r.kind, group_of(v, h), due, member)
    reopen_group(lane(r.lane).t, group_of(v, h))
  else call('ZADD', place(r.lane, r.kind), num(due), member) end
  put(id, r)
end

local function cancel_held(id, reason)
  local h, r, v = look(id)
  if not h then return batches.forget_orphan(id) end
  local l = lane(r.lane)
  local member = pk('>I8', h.seq) .. id
  if UNGROUPED[r.kind] then leave_members(r.lane, r.kind, group_of(v, h), member)
  else call('ZREM', place(r.lane, r.kind), member) end
  waits(r.lane, r.kind, -1)
  r.state = CANCELLED
  set_extra(id, r, 'reason', reason)
  tally(l.q, l.t, 'cancelled')
  finish(id, r, h, v)
  put(id, r)
end

function batches.reason_of(id, is_batch, why)
  return 'it waited for ' .. (is_batch and 'batch ' or 'job ') .. uuid(id) .. ', which ' .. why
end

-- How many of those that wait this script may still tell of an end. The others stand in `going`, by what has ended, for later scripts.
batches.tells = 1000

-- What waits for one that ended: some of it, and the place to go on from, if there may be more. All that waits is told of a success and of a
-- cancel, and waits for it no longer; of a death it is told in the order of a scan, and some of it waits on.
local function waiters_of(id, state, died, from)
  local key, most = P .. 'w:' .. id, batches.tells
  if state ~= DONE and state ~= CANCELLED and state ~= DEAD and not died then return {}, nil end
  if most <= 0 then return {}, call('EXISTS', key) == 1 and (from or '') or nil end
  if state == DONE or state == CANCELLED then
    local some = call('SPOP', key, most)
    return some, #some == most and call('EXISTS', key) == 1 and '' or nil
  end
  if not from or from == '' then
    local all = call('SRANDMEMBER', key, most)
    if #all < most then return all, nil end
  end
  local page = call('SSCAN', key, from and from ~= '' and from or '0', 'COUNT', most)
  return page[2], page[1] ~= '0' and page[1] or nil
end

-- Tell those that wait for one how it stands.
function batches.tell(id, state, removed, died, is_batch, from)
  local waiters, rest = waiters_of(id, state, died, from)
  batches.tells = batches.tells - #waiters
  for _, waiter in ipairs(waiters) do
    local about = held_of(waiter)
    local on = about and (about[3] == true and 1 or about[3] or 0)
    if about and is_over(state, died, on) then
      call('SREM', P .. 'd:' .. waiter, id)
      if call('EXISTS', P .. 'd:' .. waiter) == 0 then release(waiter, about[1]) end
    elseif about and batches.dooms(state, died, on) then
      cancel_held(waiter, batches.reason_of(id, is_batch, removed or batches.dooms(state, died, on)))
    end
  end
  if rest then
    batches.more = true
    call('HSET', P .. 'going', id, cmsgpack.pack({state, removed, died, is_batch, rest}))
  end
end

-- Go on with the jobs that wait for those that came to their end in this script, and with the batches that count them, and so on down.
local function go_on()
  local i, some = 1, #over > 0
  repeat
    while i <= #over do
      local id, state, removed, died, is_batch = unpack(over[i], 1, 5)
      if not removed then batches.count_again(id, state) end
      batches.tell(id, state, removed, died, is_batch)
      i = i + 1
    end
    local told = batches.fold()
    for _, each in ipairs(told) do over[#over + 1] = each end
    some = some or #told > 0
  until #told == 0
  over = {}
  return some
end

-- Go on with what earlier scripts have left, as it stands now; whether there was any. What was requeued since has not ended.
function batches.go_on_with_rest()
  local id = any_held and batches.tells > 0 and call('HRANDFIELD', P .. 'going')
  if not id then return false end
  local state, removed, died, is_batch, rest = unpack(cmsgpack.unpack(call('HGET', P .. 'going', id)), 1, 5)
  call('HDEL', P .. 'going', id)
  if not removed then
    local stands, has_died, was_batch = batches.standing(id)
    if stands then state, died, is_batch = stands, has_died, was_batch end
  end
  batches.tell(id, state, removed, died, is_batch, rest)
  go_on()
  return true
end

-- Cancel new jobs that wait for a job that is cancelled or not there.
local function cancel_doomed()
  for _, d in ipairs(doomed) do cancel_held(d[1], d.reason or batches.reason_of(d[2], d[4], d[3])) end
  doomed = {}
end

-- Add jobs that follow from one of that batch.
function batches.follow_on(jobs, own)
  local answers, fresh = sort_out(jobs, false)
  local refused = batches.drop(jobs, answers, fresh, own)
  accept(fresh, standing_for(jobs, answers))
  cancel_doomed()
  batches.join_holders(jobs, answers, refused)
  tally_duplicates(jobs, answers)
end
