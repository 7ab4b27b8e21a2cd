-- KEYS[1], ARGV: as in claim.lua.
-- Returns: nothing; a part of claim.lua, behind claim_sources.lua.
-- Offers places to groups by turns, each as many as its weight says, and notes whose turn is next.
local function next_turn() return call('INCR', P .. 'turns') end

-- Groups whose next job has become due take their turns behind the others.
local function wake(number)
  local later = P .. 'later:' .. num(number)
  for _, group in ipairs(call('ZRANGEBYSCORE', later, '-inf', num(now), 'LIMIT', 0, 1000)) do
    call('HDEL', P .. 'kept:' .. num(number), group)
    open_group(number, group, now)
  end
end

-- What this claim knows of a level with groups.
local function open_level(level)
  level.visited, level.again, level.seen, level.rings, level.served = {}, {}, {}, {}, {}
  for number, task in pairs(level.lanes) do
    wake(number)
    table.insert(level.rings, {key = P .. 'turn:' .. num(number), number = number, task = task, buf = {}, i = 1, at = 0})
  end
  local known = call('HGET', P .. 'plainturns', level.queue .. '|' .. level.p)
  level.plain = {name = '', turn = 0, served = 0, weight = 1, sources = level}
  if known then level.plain.turn, level.plain.served = un('>I8I8', known) end
  level.opened = true
end

-- What these groups have been served of their turns, what they weigh, and which of their sets are not there, read together.
groups.weights, groups.absent = {}, {}

function groups.look_at(level, ring)
  for i = 1, #ring.buf, 200 do
    local names, keys = {}, {}
    for n = i, min(i + 199, #ring.buf), 2 do
      local name = ring.buf[n]
      names[#names + 1] = name
      keys[#keys + 1] = group_place(ring.number, GROUPED[TIMED], name)
      keys[#keys + 1] = group_place(ring.number, GROUPED[RETRYING], name)
    end
    if call('EXISTS', unpack(keys)) == 0 then
      for _, key in ipairs(keys) do groups.absent[key] = true end
    end
    local found = call('HMGET', P .. 'served:' .. level.queue .. '|' .. level.p, unpack(names))
    for n, name in ipairs(names) do level.served[name], names[n] = found[n], level.queue .. '|' .. name end
    found = call('HMGET', P .. 'weights', unpack(names))
    for n, name in ipairs(names) do groups.weights[name] = found[n] end
  end
end

-- The first group of a lane that this claim has not met: turn and name.
local function ring_head(level, ring)
  if ring.i > #ring.buf then
    ring.buf, ring.i = call('ZRANGE', ring.key, ring.at, ring.at + CHUNK - 1, 'WITHSCORES'), 1
    ring.at = ring.at + #ring.buf / 2
    groups.look_at(level, ring)
  end
  if not ring.buf[ring.i] then return nil end
  return tonumber(ring.buf[ring.i + 1]), ring.buf[ring.i]
end

local function has_due(from)
  for _, src in ipairs(from) do
    local e = peek(src)
    if e and e[1] <= now then return true end
  end
  return false
end

-- What a limit per group leaves to this claim, in any queue that it takes jobs of the group; false when there is none.
local group_rooms = {}

local function own_room(task, group)
  local name = task .. '|' .. group
  if group_rooms[name] == nil then
    local places = group_room(task, group)
    group_rooms[name] = places and {left = places} or false
  end
  return group_rooms[name]
end

-- The jobs of a group in one lane. Of an ordered group only the first one may start.
local function sources_of_group(from, number, task, name)
  local f, own = group_rule(task), own_room(task, name)
  if f and f.ordered then
    local first = first_of_group(task, name)
    local is_late = any_late and first and late.among({first.member}, 9, 1)[1]
    while is_late and not first.started and not late.cut do
      late.put_aside_of(first.lane, first.kind, group_place(first.lane, first.kind, name), {first.member})
      first = first_of_group(task, name)
      is_late = first and first.due < ASIDE and late.among({first.member}, 9, 1)[1]
      late.cut = late.met > LATE_LOOKED_AT
    end
    if first and not is_late and not first.running and first.lane == number and first.due <= now and not left_jobs[first.id] then
      local src = source(number, first.kind, group_place(number, first.kind, name), task)
      src.buf, src.over, src.own, src.group = {{first.due, first.seq, first.id, src, first.member}}, true, own, name
      from[#from + 1] = src
    end
    return
  end
  for _, kind in ipairs(GROUP_KINDS) do
    local key = group_place(number, kind, name)
    if not groups.absent[key] and (kind == 'g' or call('EXISTS', key) == 1) then
      local src = source(number, kind, key, task)
      src.own, src.group = own, name
      from[#from + 1] = src
    end
  end
end

-- The group with its jobs of all lanes.
local function group_turn(level, name, turn)
  local from = {}
  for number, task in pairs(level.lanes) do sources_of_group(from, number, task, name) end
  local weight = tonumber(groups.weights[level.queue .. '|' .. name] or 1)
  return {name = name, turn = turn, served = tonumber(level.served[name] or 0), weight = weight, sources = from}
end

-- The group whose turn it is, of those that were not given yet; not for tasks without room.
local function first_group(level)
  while true do
    local best, turn, name
    for _, ring in ipairs(level.rings) do
      if (room[ring.task] or 1) > 0 then
        local t, g = ring_head(level, ring)
        if t and (not turn or t < turn) then best, turn, name = ring, t, g end
      end
    end
    local plain = level.plain
    if plain and (not turn or plain.turn < turn) then
      level.plain = nil
      if has_due(level) then return plain end
    elseif not best then
      return nil
    else
      best.i = best.i + 2
      if not level.seen[name] then
        level.seen[name] = true
        return group_turn(level, name, turn)
      end
    end
  end
end

-- The first group of those that this claim has not served. One that is looked at is put back when the claim is over.
local function look_at_group(level)
  if not level.front then
    level.front = first_group(level)
    if level.front then level.visited[#level.visited + 1] = level.front end
  end
  return level.front
end

-- When the oldest due job of a level fell due, of tasks that have room; with groups, that of the group whose turn it is.
local function due_since(level)
  local from, oldest = level, nil
  if level.lanes then
    if not level.opened then open_level(level) end
    local group = level.again[1] or look_at_group(level)
    from = group and group.sources or {}
  end
  for _, src in ipairs(from) do
    local e = (room[src.task] or 1) > 0 and peek(src)
    if e and e[1] <= now and (not oldest or e[1] < oldest) then oldest = e[1] end
  end
  return oldest
end

-- Groups that this claim has not visited have waited for longer than those that it has.
local function next_group(level)
  local again = level.again
  if again[1] and again[1].served % again[1].weight > 0 then return table.remove(again, 1) end
  local group = look_at_group(level)
  level.front = nil
  return group or table.remove(again, 1)
end

local function take_turns(level, places)
  if not level.opened then open_level(level) end
  local taken = {}
  while #taken < places do
    local group = next_group(level)
    if not group then break end
    local offered = min(group.weight - group.served % group.weight, places - #taken)
    local got = pick(group.sources, offered, group.served)
    for _, e in ipairs(got) do taken[#taken + 1] = e end
    group.served = group.served + #got
    if #got > 0 and group.served % group.weight == 0 then group.turn, group.moved = next_turn(), true end
    if #got > 0 then group.changed = true end
    if #got == offered then table.insert(level.again, group) end
  end
  return taken
end

-- Where a group of a lane stands, as in `stores/group_limits.py`: whether it has a turn, else the time at which it gets one, if there is one,
-- and whether a job that comes to it does not open it.
local function place_of_group(number, task, name, due)
  local places, opens = group_room(task, name)
  if places and places <= 0 then return false, opens, true end
  local f = group_rule(task)
  local first = f and f.ordered and first_of_group(task, name)
  if not first then return due <= now, due, false end
  if first.lane ~= number then reopen_lane(first.lane, name) end
  if first.running or first.lane ~= number then return false, nil, first.started end
  return first.due <= now, first.due, first.started
end

local function put_group(number, task, group, due)
  local turns, later = P .. 'turn:' .. num(number), P .. 'later:' .. num(number)
  local has_turn, at, shut = place_of_group(number, task, group.name, due)
  if has_turn then
    if group.moved then writes.later('ZADD', turns, num(group.turn), group.name) end
    return
  end
  call('ZREM', turns, group.name)
  if at then call('ZADD', later, num(at), group.name) else call('ZREM', later, group.name) end
  if shut or not at then call('HSET', P .. 'kept:' .. num(number), group.name, shut and '1' or '0') end
end

-- After the jobs were taken: visited groups go to their new turns.
local function close_level(level)
  local names, gone = {}, {}
  for _, group in ipairs(level.visited) do
    if group.name ~= '' then names[#names + 1] = group.name end
  end
  for number in pairs(level.lanes) do
    local here = {}
    gone[number] = groups.gone_of(number, names)
    for _, name in ipairs(names) do
      if gone[number][name] then here[#here + 1] = name end
    end
    groups.forget(number, here)
  end
  for _, group in ipairs(level.visited) do
    if group.name == '' then
      if group.changed then call('HSET', P .. 'plainturns', level.queue .. '|' .. level.p, pk('>I8I8', group.turn, group.served)) end
    else
      local kept = false
      for number, task in pairs(level.lanes) do
        if not gone[number][group.name] then
          kept = true
          put_group(number, task, group, next_due_of(number, group.name))
        end
      end
      if kept and group.changed then writes.later('HSET', P .. 'served:' .. level.queue .. '|' .. level.p, group.name, num(group.served)) end
    end
  end
end

-- Microseconds after which jobs of a queue have aged; nil is never.
local AGED = 600000000
local function ageing_of(queue)
  local policy = call('HGET', P .. 'policies', queue)
  local seconds = policy and cjson.decode(policy).ageing
  if seconds == cjson.null then return nil end
  return seconds and floor(seconds * 1000000 + 0.5) or AGED
end

