-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that put or drop waiting jobs with a group.
-- Keeps the groups of a lane that have waiting jobs.
-- A job with a group stands in two sorted sets: that of its lane, which counts, and that of its group, from which claims take. The
-- groups that have a due job stand in `turn:` by their turns, those that wait for a time in `later:` by that time.
local function group_place(number, kind, group) return place(number, kind) .. ':' .. group end

local function group_of(v, h) return meta_of(v, h).g end

-- A job of the group waits: from now on it has a turn, or a time at which it gets one.
local function open_group(number, group, due)
  local turns, later = P .. 'turn:' .. num(number), P .. 'later:' .. num(number)
  if call('ZSCORE', turns, group) then return end
  if due <= now then
    call('ZADD', turns, num(call('INCR', P .. 'turns')), group)
    call('ZREM', later, group)
  else
    call('ZADD', later, 'LT', num(due), group)
  end
end

-- The one way of a job into its group.
local function join_members(number, kind, group, due, member)
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
  call('HDEL', served_key(lane(number)), group)
end

-- The job waits no longer; the last one of a group takes the group with it.
local function leave_members(number, kind, group, member)
  call('ZREM', place(number, kind), member)
  call('ZREM', group_place(number, kind, group), member)
  if not next_due_of(number, group) then forget_group(number, group) end
end
