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

local group_lanes = {}

local function lanes_of(task)
  if not group_lanes[task] then group_lanes[task] = call('SMEMBERS', P .. 'grouplanes:' .. task) end
  return group_lanes[task]
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

local joined = {}

-- The one way of a job into its group.
local function join_members(number, kind, group, due, member)
  if not joined[number] then
    joined[number] = true
    call('SADD', P .. 'grouplanes:' .. lane(number).t, num(number))
    group_lanes = {}
  end
  call('ZADD', place(number, kind), num(due), member)
  call('ZADD', group_place(number, kind, group), num(due), member)
  open_group(number, group, due)
end

local function next_due_of(number, group)
  local first
  for _, kind in ipairs(GROUP_KINDS) do
    local due = tonumber(call('ZRANGE', group_place(number, kind, group), 0, 0, 'WITHSCORES')[2])
    if due and (not first or due < first) then first = due end
  end
  return first
end

local function served_key(l) return P .. 'served:' .. l.q .. '|' .. l.p end

local function forget_group(number, group)
  call('ZREM', P .. 'turn:' .. num(number), group)
  call('ZREM', P .. 'later:' .. num(number), group)
  call('HDEL', P .. 'kept:' .. num(number), group)
  call('HDEL', served_key(lane(number)), group)
end

-- The job waits no longer; the last one of a group takes the group with it.
local function leave_members(number, kind, group, member)
  call('ZREM', place(number, kind), member)
  call('ZREM', group_place(number, kind, group), member)
  if not next_due_of(number, group) then forget_group(number, group) end
  reopen_group(lane(number).t, group)
end
