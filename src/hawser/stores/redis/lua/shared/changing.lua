-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts by which an operator changes jobs that wait.
-- Gives a waiting job another queue, priority or due time, as `changing` says: '' stays; the time is meant 'at' or 'in'.
local changing = {queue = '', priority = '', how = '', time = 0}

-- The job's hold goes along into another queue; false when another job holds the key there.
local function move_key(id, l, to, key)
  local other = holder(to, l.t, key)
  if other and other ~= id then return false end
  local v = call('HGET', scope(l.q, l.t), key)
  if v and sub(v, 9, 24) == id then
    unhold(l.q, l.t, key)
    hold(to, l.t, key, id, un('>I8', v), sub(v, 25))
  end
  return true
end

function acts.change(id, h, r, v)
  if r.state ~= READY or held_of(id) then return 'wrong_state' end
  local l, due = lane(r.lane), due_of(id, h, r)
  local q = changing.queue ~= '' and changing.queue or l.q
  if h.keyed and q ~= l.q and not move_key(id, l, q, meta_of(v, h).k) then return 'key_taken' end
  leave_lane(id, r, h, v)
  if changing.how == 'at' then due = changing.time elseif changing.how == 'in' then due = now + changing.time end
  r.lane = number_of(lane_named(q, l.t, changing.priority ~= '' and changing.priority or l.p))
  if r.lane ~= h.lane then
    h.lane = r.lane
    call('HSET', P .. 'b:' .. bucket(id), id, headed(h) .. sub(v, HEADLEN + 1))
  end
  r.kind = r.attempt > 0 and RETRYING or due > now and TIMED or PAST
  r.run_at = r.attempt > 0 and max(due, now) or due
  if UNGROUPED[h.kind] then
    r.kind = GROUPED[r.kind]
    join_members(r.lane, r.kind, group_of(v, h), r.run_at, pk('>I8', h.seq) .. id)
    reopen_group(l.t, group_of(v, h))
  else
    call('ZADD', place(r.lane, r.kind), num(r.run_at), pk('>I8', h.seq) .. id)
  end
  waits(r.lane, r.kind, 1)
  call('SADD', P .. 'queues', q)
  put(id, r)
  return 'done'
end
