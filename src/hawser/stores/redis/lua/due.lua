-- KEYS[1]: prefix. ARGV: now, tasks to leave (msgpack list), jobs to leave (ids joined), then queues.
-- Returns: microseconds until a job of these queues may be claimed, 0 if one may be now, -1 if no job waits.
-- Says how long a wait may last.
-- uses: counts lanes fresh_lists records turns pauses limits rooms
local left_tasks, left_jobs, soonest = {}, {}, nil
for _, task in ipairs(cmsgpack.unpack(ARGV[2])) do left_tasks[task] = true end
for i = 1, #ARGV[3], 16 do left_jobs[sub(ARGV[3], i, i + 15)] = true end
local count = #ARGV[3] / 16

-- Ordered groups of which a job is left to others.
local left_groups = {}
if any_limit then
  for id in pairs(left_jobs) do
    local h, r, v = look(id)
    local f = h and UNGROUPED[h.kind] and group_rule(lane(r.lane).t)
    if f and f.ordered then left_groups[lane(r.lane).t .. '|' .. group_of(v, h)] = true end
  end
end

-- At once when a group has a turn and a due job that is not left to others, else when the next group gets its turn.
local function soon_of_groups(number)
  for _, group in ipairs(call('ZRANGE', P .. 'turn:' .. num(number), 0, count)) do
    for _, kind in ipairs(GROUP_KINDS) do
      local due = call('ZRANGEBYSCORE', group_place(number, kind, group), '-inf', num(now), 'LIMIT', 0, count + 1)
      for _, member in ipairs(due) do
        if not left_jobs[sub(member, 9)] and not left_groups[lane(number).t .. '|' .. group] then return now end
      end
    end
  end
  return tonumber(call('ZRANGE', P .. 'later:' .. num(number), 0, 0, 'WITHSCORES')[2])
end

local function soon(number, kind)
  if UNGROUPED[kind] then return soon_of_groups(number) end
  if kind == FRESH then
    local left = tonumber(call('HGET', P .. 'stale', num(number)) or 0)
    local entries = fresh_lane.first(number, count + left + 1)
    local stale = left > 0 and fresh_stale(entries)
    for i, e in ipairs(entries) do
      if not left_jobs[sub(e, 17)] and not (stale and stale[i]) then return now end
    end
    return nil
  end
  local found = call('ZRANGE', place(number, kind), 0, count, 'WITHSCORES')
  for i = 1, #found, 2 do
    if not left_jobs[sub(found[i], 9)] then return tonumber(found[i + 1]) end
  end
  return nil
end

-- Whether a limit leaves nothing; when its rate lets a job start counts as a time to look.
local function kept_back(kind, name)
  if not any_limit and not any_breaker then return false end
  local shut, opens = is_shut(kind, name)
  if opens and (not soonest or opens < soonest) then soonest = opens end
  return shut
end

for i = 4, #ARGV do
  if not paused('queue', ARGV[i]) and not kept_back('queue', ARGV[i]) then
    for _, field in ipairs(call('HKEYS', P .. 'n:' .. ARGV[i])) do
      local number, kind = match(field, '^%d|(%d+)|(%w)$')
      local task = lane(tonumber(number)).t
      if not left_tasks[task] and not paused('task', task) and not kept_back('task', task) then
        local due = soon(tonumber(number), kind)
        if due and (not soonest or due < soonest) then soonest = due end
      end
    end
  end
end
return soonest and num(max(0, soonest - now)) or '-1'
