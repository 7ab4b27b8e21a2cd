-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts by which an operator acts on jobs.
-- Cancels, requeues or discards jobs, and leaves one audit record if anything changed.
local function set_reason(id, r, reason)
  if reason ~= '' then set_extra(id, r, 'reason', reason) elseif r.extra == 1 then call('HDEL', P .. 'o:' .. id, 'reason') end
end

-- The job waits no longer, in this script `for_good`. Its entry in a fresh lane is not searched for: it is stale from now on.
local function leave_lane(id, r, h, v, for_good)
  local member, kind = pk('>I8', h.seq) .. id, r.kind
  if UNGROUPED[kind] then
    leave_members(r.lane, kind, group_of(v, h), member)
  elseif kind == FRESH then
    if fresh.has_past(r.lane) and call('ZREM', place(r.lane, PAST), member) == 1 then kind = PAST else add('stale', num(r.lane), 1) end
  elseif for_good then writes.later('ZREM', place(r.lane, kind), member)
  else call('ZREM', place(r.lane, kind), member) end
  waits(r.lane, kind, -1)
  if kind == FRESH and fresh.left(r.lane) <= 0 then
    flush()
    fresh_lane.clear(r.lane)
    call('HDEL', P .. 'stale', num(r.lane))
  end
end

-- Finish a job that is not running.
local function cancel_now(id, r, h, v, reason)
  local l = lane(r.lane)
  r.state = CANCELLED
  set_reason(id, r, reason)
  tally(l.q, l.t, 'cancelled')
  finish(id, r, h, v)
  put(id, r)
  return 'done'
end

local acts = {}

function acts.cancel(id, h, r, v, reason)
  if r.state == RUNNING then
    r.asked = 1
    call('SADD', P .. 'asked', id)
    set_reason(id, r, reason)
    put(id, r)
    return 'asked'
  end
  if r.state ~= READY then return 'wrong_state' end
  r.run_at = due_of(id, h, r)
  leave_lane(id, r, h, v, true)
  return cancel_now(id, r, h, v, reason)
end

-- The job expires no longer.
local function without_expiry(id, h, v)
  local meta, body = meta_of(v, h), sub(v, HEADLEN + h.meta + 1)
  meta.e = nil
  local text = next(meta) and cmsgpack.pack(meta) or ''
  h.meta, h.flags, h.expires = #text, h.flags - EXPIRES, false
  v = headed(h) .. text .. body
  call('HSET', P .. 'b:' .. bucket(id), id, v)
  return v
end

-- Requeued jobs fall due evenly over a spread, from a delay on, in their order.
local requeuing = {spread = 0, delay = 0, place = 0, count = 1}

function acts.requeue(id, h, r, v)
  if r.state ~= DEAD and r.state ~= CANCELLED then return 'wrong_state' end
  local l = lane(r.lane)
  if h.keyed then
    local key = meta_of(v, h).k
    local other = holder(l.q, l.t, key)
    if other and other ~= id then return 'key_taken' end
    if not other then hold(l.q, l.t, key, id, 0) end
  end
  leave_finished(id, r, l)
  if h.expires then v = without_expiry(id, h, v) end
  if any_held then
    local batch = batches.of(v, h)
    if batch then batches.count(batch, r.state, READY) end
    over[#over + 1] = {id, READY, false, false, false}
  end
  r.attempt = 0
  if r.extra == 1 then call('HDEL', P .. 'o:' .. id, 'reason', 'result') end
  wait_again(id, r, h, v, now + requeuing.delay + floor(requeuing.spread * requeuing.place / requeuing.count))
  put(id, r)
  return 'done'
end

function acts.discard(id, h, r, v, reason)
  if r.state ~= DEAD then return 'wrong_state' end
  leave_finished(id, r, lane(r.lane))
  local batch = batches.of(v, h)
  if batch then batches.count(batch, DEAD, READY) end
  return cancel_now(id, r, h, v, reason)
end

-- A word for each id, and how many jobs were changed. A record of several jobs names at most `most` of them.
local function act_on(action, by, reason, about, most, named)
  local answers, changed, ids, seen = {}, 0, {}, {}
  look_ahead(named)
  for i, id in ipairs(named) do
    local h, r, v = look(id)
    requeuing.place, requeuing.count = i - 1, #named
    local answer = h and acts[action](id, h, r, v, reason) or 'not_found'
    if answer == 'done' or answer == 'asked' then
      changed = changed + 1
      if not seen[id] and #ids < most then ids[#ids + 1] = id end
      seen[id] = true
    end
    answers[i] = answer
  end
  if changed > 0 then
    local single = #named == 1
    audit(by, action, single and 'job' or 'jobs', changed, reason, about, single and named[1] or table.concat(ids))
  end
  return answers, changed
end
