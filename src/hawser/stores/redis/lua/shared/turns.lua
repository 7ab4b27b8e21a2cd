-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that put or drop waiting jobs with a group.
-- Keeps the groups of a lane that have waiting jobs.
-- A job with a group stands in two sorted sets: that of its lane, which counts, and that of its group, from which claims take. The
-- groups that have a due job stand in `turn:` by their turns, those that wait for a time in `later:` by that time. A group that a limit or
-- the order of its jobs keeps back stands in `kept:`, with 1 when no job that comes to it opens it; it may wait for a time, too.
-- `grouplanes:` has the lanes of a task in which groups wait.
local function group_place(number, kind, group) return place(number, kind) .. ':' .. group end

local function group_of(v, h) return meta_of(v, h).g end

-- A job of the group waits: from now on it has a turn, or a time at which it gets one.
local function open_group(number, group, due)
  local turns, later, kept = P .. 'turn:' .. num(number), P .. 'later:' .. num(number), P .. 'kept:' .. num(number)
  if call('ZSCORE', turns, group) or call('HGET', kept, group) == '1' then return end
  call('HDEL', kept, group)
  if due <= now then
    call('ZADD', turns, num(call('INCR', P .. 'turns')), group)
    call('ZREM', later, group)
  else
    call('ZADD', later, 'LT', num(due), group)
  end
end

-- Let the next claim look at a group that is kept back, in one lane.
local function reopen_lane(number, group)
  if call('HDEL', P .. 'kept:' .. num(number), group) == 1 then call('ZADD', P .. 'later:' .. num(number), num(now), group) end
end

local groups = {joined = {}, lanes = {}}

local function lanes_of(task)
  if not groups.lanes[task] then groups.lanes[task] = call('SMEMBERS', P .. 'grouplanes:' .. task) end
  return groups.lanes[task]
end

-- A job of the group has left: look at the group again, in all lanes of its task.
local function reopen_group(task, group)
  for _, number in ipairs(lanes_of(task)) do reopen_lane(number, group) end
end

local function reopen_all(number)
  local scored = {}
  for _, group in ipairs(call('HKEYS', P .. 'kept:' .. num(number))) do
    scored[#scored + 1] = num(now)
    scored[#scored + 1] = group
  end
  if #scored > 0 then
    many('ZADD', P .. 'later:' .. num(number), scored)
    call('UNLINK', P .. 'kept:' .. num(number))
  end
end

-- The one way of a job into its group.
local function join_members(number, kind, group, due, member)
  if not groups.joined[number] then
    groups.joined[number] = true
    call('SADD', P .. 'grouplanes:' .. lane(number).t, num(number))
    groups.lanes = {}
  end
  call('ZADD', place(number, kind), num(due), member)
  call('ZADD', group_place(number, kind, group), num(due), member)
  open_group(number, group, due)
end

-- Jobs have come to these groups: as `open_group` does for each {lane, group, due}, in their order.
function groups.open(comers)
  local by_lane, ready = {}, {}
  for _, c in ipairs(comers) do
    local number, group, due = c[1], c[2], c[3]
    if not groups.joined[number] then
      groups.joined[number] = true
      call('SADD', P .. 'grouplanes:' .. lane(number).t, num(number))
      groups.lanes = {}
    end
    local l = by_lane[number]
    if not l then l = {names = {}, by = {}} by_lane[number] = l end
    local g = l.by[group]
    if not g then
      g = {name = group, number = number, due = due}
      l.by[group], l.names[#l.names + 1] = g, group
    end
    g.due = min(g.due, due)
    if due <= now and not g.ready then
      g.ready = true
      ready[#ready + 1] = g
    end
  end
  for number, l in pairs(by_lane) do
    local turns, later_, kept = P .. 'turn:' .. num(number), P .. 'later:' .. num(number), P .. 'kept:' .. num(number)
    for i = 1, #l.names, PIECE do
      local names = {unpack(l.names, i, min(i + PIECE - 1, #l.names))}
      local scores, is_kept = call('ZMSCORE', turns, unpack(names)), call('HMGET', kept, unpack(names))
      for n, group in ipairs(names) do
        local g = l.by[group]
        g.opens = not scores[n] and is_kept[n] ~= '1'
        if g.opens and is_kept[n] then writes.later('HDEL', kept, group) end
        if g.opens and g.ready then writes.later('ZREM', later_, group) end
        if g.opens and not g.ready then call('ZADD', later_, 'LT', num(g.due), group) end
      end
    end
  end
  local opened = {}
  for _, g in ipairs(ready) do if g.opens then opened[#opened + 1] = g end end
  if #opened > 0 then
    local turn = call('INCRBY', P .. 'turns', #opened) - #opened
    for n, g in ipairs(opened) do writes.later('ZADD', P .. 'turn:' .. num(g.number), num(turn + n), g.name) end
  end
  writes.together()
end

local function next_due_of(number, group)
  local first
  for _, kind in ipairs(GROUP_KINDS) do
    local due = tonumber(call('ZRANGE', group_place(number, kind, group), 0, 0, 'WITHSCORES')[2])
    if due and (not first or due < first) then first = due end
  end
  return first
end

-- Those of these groups of which no job waits in a lane. One look answers for many.
function groups.gone_of(number, names)
  local gone = {}
  for i = 1, #names, 100 do
    local last, keys = min(i + 99, #names), {}
    for n = i, last do
      for _, kind in ipairs(GROUP_KINDS) do keys[#keys + 1] = group_place(number, kind, names[n]) end
    end
    local any = call('EXISTS', unpack(keys)) > 0
    for n = i, last do gone[names[n]] = not any or not next_due_of(number, names[n]) end
  end
  return gone
end

local function served_key(l) return P .. 'served:' .. l.q .. '|' .. l.p end

local function forget_group(number, group)
  call('ZREM', P .. 'turn:' .. num(number), group)
  call('ZREM', P .. 'later:' .. num(number), group)
  call('HDEL', P .. 'kept:' .. num(number), group)
  call('HDEL', served_key(lane(number)), group)
end

function groups.forget(number, names)
  many('ZREM', P .. 'turn:' .. num(number), names)
  many('ZREM', P .. 'later:' .. num(number), names)
  many('HDEL', P .. 'kept:' .. num(number), names)
  many('HDEL', served_key(lane(number)), names)
end

-- The job waits no longer; the last one of a group takes the group with it.
local function leave_members(number, kind, group, member)
  call('ZREM', place(number, kind), member)
  call('ZREM', group_place(number, kind, group), member)
  if not next_due_of(number, group) then forget_group(number, group) end
  reopen_group(lane(number).t, group)
end
