-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts by which jobs end, wait again, or are removed.
-- Where a job goes was decided by `hawser.outcome.follow`; here it is written.
local ended = {}

local function group_key(l, fingerprint) return l.q .. '|' .. l.t .. '|' .. fingerprint end

local function join_group(id, r, fingerprint)
  local name = group_key(lane(r.lane), fingerprint)
  call('ZADD', P .. 'g:' .. name, 0, id)
  call('SADD', P .. 'groups', name)
  set_extra(id, r, 'fingerprint', fingerprint)
end

local function leave_group(id, l)
  local fingerprint = call('HGET', P .. 'o:' .. id, 'fingerprint')
  if not fingerprint then return end
  local name = group_key(l, fingerprint)
  writes.later('ZREM', P .. 'g:' .. name, id)
  writes.left_groups[name] = true
  call('HDEL', P .. 'o:' .. id, 'fingerprint')
end

-- The job is dead or cancelled no longer.
local function leave_finished(id, r, l)
  add('s', l.q .. '|' .. STATE[r.state], -1)
  if r.state ~= DONE then writes.later('ZREM', P .. 'x:' .. STATE[r.state], id) end
  if r.state == DEAD then leave_group(id, l) end
end

-- The job has come to its end, in the state that its record has.
local function finish(id, r, h, v)
  local l = lane(r.lane)
  r.finished = now
  if h.expires then call('ZREM', P .. 'expiries', id) end
  if any_held then
    local batch = batches.of(v, h)
    if batch then batches.count(batch, READY, r.state) end
    over[#over + 1] = {id, r.state, false, r.state == DEAD, false}
    if held_of(id) then no_longer_held(id, l.q) end
  end
  add('s', l.q .. '|' .. STATE[r.state], 1)
  local name = l.t .. '|' .. STATE[r.state]
  writes.later('RPUSH', P .. 'f:' .. name, pk('>I8', now) .. id)
  if not writes.finished[name] then writes.later('SADD', P .. 'finished', name) end
  writes.finished[name] = true
  if r.state ~= DONE then writes.later('ZADD', P .. 'x:' .. STATE[r.state], 0, id) end
  if h.keyed then
    local meta = meta_of(v, h)
    if meta.l ~= -1 then end_key(l.q, l.t, meta.k, id) end
  end
end

-- Wait again, in a sorted set.
local function wait_again(id, r, h, v, due)
  local grouped, member = UNGROUPED[h.kind], pk('>I8', h.seq) .. id
  r.state, r.asked, r.finished, r.run_at = READY, 0, 0, due
  r.kind = r.attempt > 0 and RETRYING or TIMED
  if h.expires then call('ZADD', P .. 'expiries', num(h.enqueued + meta_of(v, h).e), id) end
  if grouped then
    r.kind = GROUPED[r.kind]
    join_members(r.lane, r.kind, group_of(v, h), due, member)
  else
    call('ZADD', place(r.lane, r.kind), num(due), member)
  end
  waits(r.lane, r.kind, 1)
  call('SADD', P .. 'queues', lane(r.lane).q)
end

-- What a step waits for, while it came to nothing yet.
local function is_open(step) return step[3] == 'wait' or step[3] == 'woken' end

-- Take a wait out of those that last; `awaiting` is how many there are.
local function awaits_no_more(command, event, ...)
  local gone = call(command, P .. 'await:' .. event, ...)
  if gone == 1 then call('DECR', P .. 'awaiting') end
end

-- A step waits for its event no longer. `await:` has who is to be woken by an event, `woken:` who has not gone on with it yet: an event
-- that was kept for its time goes when both are empty.
local function waits_no_more(id, step)
  local member, event = id .. step[2], step[8]
  call('ZREM', P .. 'deadlines', member)
  if not event then return end
  awaits_no_more('SREM', event, member)
  call('SREM', P .. 'woken:' .. event, member)
  local v = call('HGET', P .. 'events', event)
  if v then call('ZADD', P .. 'eventends', cmsgpack.unpack(v)[2], event) end
end

local function forget_waits(id)
  for _, packed_step in ipairs(call('HVALS', P .. 'steps:' .. id)) do
    local step = cmsgpack.unpack(packed_step)
    if is_open(step) then waits_no_more(id, step) end
  end
end

-- Ids of jobs that are to be forgotten, by bucket: two commands for each would be most of the log of a job that is not kept.
local removed = {}

-- Forget a job that has ended; its entry in the list of finished ones is passed over when its time comes. What is kept of it goes with
-- `forget_removed`, which has to follow before jobs are read other than by `look`.
local function remove(id, r, h, v)
  local l, k = lane(r.lane), bucket(id)
  if h.expires then call('ZREM', P .. 'expiries', id) end
  if h.keyed or h.indexed then
    local meta = meta_of(v, h)
    index(id, meta, -1)
    if meta.k then end_key(l.q, l.t, meta.k, id) end
  end
  if r.extra == 1 and call('HEXISTS', P .. 'o:' .. id, 'waited') == 1 then forget_waits(id) end
  if r.extra == 1 then call('UNLINK', P .. 'o:' .. id, P .. 'h:' .. id, P .. 'steps:' .. id, P .. 'out:' .. id) end
  local ids = removed[k]
  if not ids then ids = {} removed[k] = ids end
  ids[#ids + 1] = id
  ahead[id] = {false, false}
end

local function forget_removed()
  writes.records()
  for k, ids in pairs(removed) do
    many('HDEL', P .. 'm:' .. k, ids)
    many('HDEL', P .. 'b:' .. k, ids)
    if call('EXISTS', P .. 'b:' .. k) == 0 then call('ZREM', P .. 'buckets', k) end
  end
  removed = {}
end

local worker_named
do
  local workers = {}
  function worker_named(claim)
    local w = workers[claim]
    if not w then
      w = call('HGET', P .. 'c:' .. num(claim), 'worker') or ''
      workers[claim] = w
    end
    return w
  end
end

local function worker_of(r) return r.state == RUNNING and worker_named(r.claim) or r.worker end

local function end_run(r, h)
  ended[r.claim] = (ended[r.claim] or 0) + 1
  if r.kind == FRESH then fresh_lane.let_go(r.lane, h.seq) end
end

-- One of the ways that the outcome may go: a cancel was asked, the attempts are used up, or neither.
local function step_for(steps, r, h)
  if r.asked == 1 then return steps[3] end
  if r.attempt >= h.most then return steps[2] end
  return steps[1]
end

-- Take a job out of running. A step is state, word, after, burns, recorded, crashed, event, error, traceback, reason, result,
-- fingerprint, and what the job is to wait for; false where missing.
local function leave(id, r, h, v, steps)
  local step = step_for(steps, r, h)
  local state, word, after, burns, recorded, crashed, event = unpack(step, 1, 7)
  local error_, traceback, reason, result, fingerprint = unpack(step, 8, 12)
  local l, w, o = lane(r.lane), worker_of(r), P .. 'o:' .. id
  if recorded and state ~= DONE then
    local length = call('RPUSH', P .. 'h:' .. id, cmsgpack.pack({r.attempt, r.lease, w, r.started, now, word, error_, traceback}))
    if length > HISTORY then call('LTRIM', P .. 'h:' .. id, -HISTORY, -1) end
    r.extra = 1
  end
  if event then tally(l.q, l.t, event) end
  if state ~= READY then
    tally(l.q, l.t, STATE[state])
    tally(l.q, l.t, 'ended:' .. fmt('%d', min(r.attempt, 99)))
  end
  local group = UNGROUPED[h.kind] and group_of(v, h)
  add('s', l.q .. '|running', -1)
  count_runs(l, -1, group)
  if group then reopen_group(l.t, group) end
  end_run(r, h)
  -- A cancelled job keeps why its end was asked for.
  if state ~= CANCELLED or reason or r.asked == 0 then
    if reason then set_extra(id, r, 'reason', reason) elseif r.extra == 1 then call('HDEL', o, 'reason') end
  end
  if r.asked == 1 then call('SREM', P .. 'asked', id) end
  if result then set_extra(id, r, 'result', result) elseif r.extra == 1 then call('HDEL', o, 'result') end
  if crashed then r.crashes = r.crashes + 1 end
  r.state, r.until_, r.worker = state, 0, w
  if not burns then r.attempt, r.returned = r.attempt - 1, r.returned + 1 end
  local hold = step[13]
  if hold then r.attempt = 0 end
  if state == READY then
    wait_again(id, r, h, v, hold and FAR or now + after)
  else
    finish(id, r, h, v)
    if state == DEAD then join_group(id, r, fingerprint) end
  end
  return step
end

-- Claims of which no run is left go, and what fresh lanes have of runs that ended, and jobs that were removed.
local function close_claims()
  for claim, by in pairs(ended) do
    local key = P .. 'c:' .. num(claim)
    if call('HINCRBY', key, 'open', -by) <= 0 then
      call('UNLINK', key)
      call('ZREM', P .. 'leases', num(claim))
    end
  end
  ended = {}
  fresh_lane.close()
  forget_removed()
end
