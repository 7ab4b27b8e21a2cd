-- KEYS[1]: prefix. ARGV: now, limit, microseconds that done, dead and cancelled jobs are kept, then task and these three for each task
-- that has its own; last the number of done jobs that are kept at most, and how long audit records, bulk operations and workers are kept.
-- Returns: how many finished jobs were removed.
-- Removes finished jobs past their retention, and what else has run out.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies missed bulks requests recount
local limit, usual, by_task = tonumber(ARGV[2]), {}, {}
local LOOK_EVERY_US = 3600000000
local WORDS = {'done', 'dead', 'cancelled'}
for n, word in ipairs(WORDS) do usual[word] = tonumber(ARGV[2 + n]) end
for i = 6, #ARGV - 4, 4 do
  by_task[ARGV[i]] = {done = tonumber(ARGV[i + 1]), dead = tonumber(ARGV[i + 2]), cancelled = tonumber(ARGV[i + 3])}
end
local done_most = tonumber(ARGV[#ARGV - 3])
local kept = {audit = tonumber(ARGV[#ARGV - 2]), bulk = tonumber(ARGV[#ARGV - 1]), worker = tonumber(ARGV[#ARGV])}
note_time()
sweep(limit)
-- Before what has ended is removed.
find_missed(2000)
local released = find_released(100)
recount_batches(1000)

local removed, looked, done = 0, 0, 0

-- The job of a probe is removed, and was not done: its breaker does not name it any longer. An entry is as `note_probe` writes it.
local function forget_probe(task, id)
  local v = call('HGET', P .. 'probes', task)
  if v and sub(v, 25) == id then call('HSET', P .. 'probes', task, sub(v, 1, 16) .. pk('>I8', 0)) end
end

-- Take the first entry of a list of finished jobs away, and the job with it. Entries of jobs that went on, or are gone, are passed
-- over.
local function remove_first(key, entry, state)
  looked = looked + 1
  call('LPOP', key)
  local id = sub(entry, 9)
  local h, r, v = look(id)
  if h and STATE[r.state] == state and r.finished == un('>I8', entry) then
    leave_finished(id, r, lane(r.lane))
    remove(id, r, h, v)
    if any_held and state == 'dead' then over[#over + 1] = {id, CANCELLED, 'was removed while it was dead', false, false} end
    if state ~= 'done' then forget_probe(lane(r.lane).t, id) end
    removed = removed + 1
    if state == 'done' then done = done - 1 end
  end
end

local function may_go_on() return removed < limit and looked < 10 * limit + 1000 end

local names = call('SMEMBERS', P .. 'finished')
for _, name in ipairs(names) do
  local task, state = match(name, '^([^|]*)|(.*)$')
  local key, by = P .. 'f:' .. name, now - (by_task[task] or usual)[state]
  while may_go_on() do
    local entry = call('LINDEX', key, 0)
    if not entry or un('>I8', entry) > by then break end
    remove_first(key, entry, state)
  end
end

-- More done jobs than fit go before their time, those that ended first.
do
  local states = call('HGETALL', P .. 's')
  for i = 1, #states, 2 do
    if match(states[i], '|done$') then done = done + states[i + 1] end
  end
end
while done > done_most and may_go_on() do
  local oldest, first
  for _, name in ipairs(names) do
    local entry = match(name, '|done$') and call('LINDEX', P .. 'f:' .. name, 0)
    if entry and (not first or entry < first) then oldest, first = P .. 'f:' .. name, entry end
  end
  if not oldest then break end
  remove_first(oldest, first, 'done')
end
forget_removed()
for _, name in ipairs(names) do
  if call('EXISTS', P .. 'f:' .. name) == 0 then call('SREM', P .. 'finished', name) end
end

-- Forget batches that ended long ago; what waits for one still is cancelled.
function batches.prune()
  for _, state in ipairs(WORDS) do
    for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'be:' .. state, '-inf', num(now - usual[state]), 'LIMIT', 0, limit)) do
      local b = batches.read(id)
      batches.place(id, b, nil)
      call('ZREM', P .. 'bs', id)
      call('HDEL', P .. 'batches', id)
      for _, member in ipairs(call('HKEYS', P .. 'bo:' .. id)) do call('SREM', P .. 'bi:' .. member, id) end
      call('UNLINK', P .. 'bo:' .. id)
      over[#over + 1] = {id, CANCELLED, 'was removed while it was dead', b.died, true}
    end
  end
end

if any_held then batches.prune() end

for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'requestends', '-inf', num(now), 'LIMIT', 0, limit)) do
  local v = call('HGET', P .. 'requests', name)
  if v and any_kept(sub(v, 41)) then
    call('HSET', P .. 'requests', name, pk('>I8', now + LOOK_EVERY_US) .. sub(v, 9))
    call('ZADD', P .. 'requestends', num(now + LOOK_EVERY_US), name)
  else
    call('HDEL', P .. 'requests', name)
    call('ZREM', P .. 'requestends', name)
  end
end

for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'eventends', '-inf', num(now), 'LIMIT', 0, limit)) do
  if call('EXISTS', P .. 'await:' .. name, P .. 'woken:' .. name) > 0 then
    call('ZADD', P .. 'eventends', num(now + LOOK_EVERY_US), name)
  else
    call('HDEL', P .. 'events', name)
    call('ZREM', P .. 'eventends', name)
  end
end

do
  local pauses = call('HGETALL', P .. 'pauses')
  for i = 1, #pauses, 2 do
    local until_ = cmsgpack.unpack(pauses[i + 1])[2]
    if until_ > 0 and until_ <= now then call('HDEL', P .. 'pauses', pauses[i]) end
  end
end
for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
  if call('EXISTS', P .. 'n:' .. queue) == 0 then call('SREM', P .. 'queues', queue) end
end
for _, entry in ipairs(call('XRANGE', P .. 'audit', '-', '+', 'COUNT', limit)) do
  if cmsgpack.unpack(entry[2][2])[1] > now - kept.audit then break end
  call('XDEL', P .. 'audit', entry[1])
end
do
  local seen = call('HGETALL', P .. 'workers')
  for i = 1, #seen, 2 do
    if cmsgpack.unpack(seen[i + 1])[2] <= now - kept.worker then call('HDEL', P .. 'workers', seen[i]) end
  end
end
for _, id in ipairs(call('ZRANGE', P .. 'bulkids', 0, limit)) do
  local ended_at = operation(id)[FIELD.ended]
  if ended_at and ended_at <= now - kept.bulk then
    call('HDEL', P .. 'bulks', id)
    call('ZREM', P .. 'bulkids', id)
  end
end
for _, id in ipairs(call('HKEYS', P .. 'declined')) do
  local h, r = look(id)
  if not h or r.state > RUNNING then call('HDEL', P .. 'declined', id) end
end
fresh_lane.tidy(kept.worker)
local some = go_on()
flush()
recount()
if some or released then call('PUBLISH', P .. 'wake', '') end
return removed
