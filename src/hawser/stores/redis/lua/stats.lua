-- KEYS[1]: prefix. ARGV: now, then queues; none: all of them.
-- Returns: now, the first minute of the last hour in which anything was counted (0 when nothing was), and for each queue its name, fresh, timed, timed and due, retrying, retrying and due, oldest due ('' when no job waits), keys,
-- paused, counts by state (flat), sums of events (flat).
-- Counts what a queue holds. ZCOUNT takes log n, so the figures are exact at any depth.
-- uses: counts lanes fresh_lists records oldest keys pauses
local RATE_MINUTES, ATTEMPT_MINUTES = 5, 60
local queues, known = {}, {}

local function name(queue)
  if not known[queue] then
    known[queue] = {states = {}, sums = {}}
    queues[#queues + 1] = queue
  end
end

local function every_queue()
  for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
    if call('EXISTS', P .. 'n:' .. queue) == 1 then name(queue) end
  end
  for _, field in ipairs(call('HKEYS', P .. 's')) do name(match(field, '^([^|]*)|')) end
  for _, hash in ipairs({'limits', 'policies'}) do
    for _, queue in ipairs(call('HKEYS', P .. hash)) do name(queue) end
  end
  for _, field in ipairs(call('HKEYS', P .. 'rules')) do
    local queue = match(field, '^queue|(.*)$')
    if queue then name(queue) end
  end
  for _, field in ipairs(call('HKEYS', P .. 'pauses')) do
    local queue = match(field, '^queue|(.*)$')
    if queue and paused('queue', queue) then name(queue) end
  end
end

if ARGV[2] then for i = 2, #ARGV do name(ARGV[i]) end else every_queue() end

local states = call('HGETALL', P .. 's')
for i = 1, #states, 2 do
  local queue, state = match(states[i], '^([^|]*)|(.*)$')
  if known[queue] then
    local s = known[queue].states
    s[#s + 1], s[#s + 2] = state, states[i + 1]
  end
end

local this, first = floor(now / 60000000), 0
for minute = this - ATTEMPT_MINUTES + 1, this do
  local counted = call('HGETALL', P .. 't:' .. num(minute))
  if first == 0 and counted[1] then first = minute end
  for i = 1, #counted, 2 do
    local queue, event = match(counted[i], '^([^|]*)|[^|]*|(.*)$')
    local at = known[queue]
    if at and (minute > this - RATE_MINUTES or sub(event, 1, 6) == 'ended:') then
      at.sums[event] = (at.sums[event] or 0) + counted[i + 1]
    end
  end
end

-- Windows that have run out and were not swept are held by nothing.
local over = {}
for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'kw', '-inf', num(now), 'LIMIT', 0, 1000)) do
  local id, queue, task, key = sub(member, 1, 16), match(sub(member, 17), '^([^|]*)|([^|]*)|(.*)$')
  local v = call('HGET', scope(queue, task), key)
  if v and sub(v, 9, 24) == id and not holder(queue, task, key) then over[queue] = (over[queue] or 0) + 1 end
end

local out = {num(now), first}
for _, queue in ipairs(queues) do
  local fresh, timed, timed_due, retrying, retrying_due, oldest = 0, 0, 0, 0, 0, nil
  local fields = call('HGETALL', P .. 'n:' .. queue)
  for i = 1, #fields, 2 do
    local number, kind = match(fields[i], '^%d|(%d+)|(%w)$')
    number = tonumber(number)
    local count, due = tonumber(fields[i + 1]), oldest_of(number, kind)
    if due and (not oldest or due < oldest) then oldest = due end
    local plain = UNGROUPED[kind] or kind
    if plain == FRESH or plain == PAST then fresh = fresh + count
    else
      local ready = call('ZCOUNT', place(number, kind), '-inf', num(now))
      if plain == TIMED then timed, timed_due = timed + count, timed_due + ready
      else retrying, retrying_due = retrying + count, retrying_due + ready end
    end
  end
  local sums = {}
  for event, sum in pairs(known[queue].sums) do
    sums[#sums + 1], sums[#sums + 2] = event, num(sum)
  end
  out[#out + 1] = {queue, fresh, timed, timed_due, retrying, retrying_due, oldest and num(oldest) or '',
    tonumber(call('HGET', P .. 'kc', queue) or 0) - (over[queue] or 0), paused('queue', queue) and 1 or 0, known[queue].states, sums}
end
return out
