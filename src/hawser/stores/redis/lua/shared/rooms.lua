-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that ask what may start.
-- Says what limits and breakers leave of a queue, task or group.
-- `starts` has the starts of the last period: the last slot, then sixteen counts. `groupstarts` has them by task and group.
local SLOTS = 16
local windows = {}

-- The starts of the last period as of now. A clock that went back by less than the window goes on in the last slot; by more, the
-- starts are dropped.
local function window(kind, name, width)
  local field = kind .. '|' .. name
  local w = windows[field]
  if w then return w end
  local v, slot = call('HGET', P .. (kind == 'group' and 'groupstarts' or 'starts'), field), floor(now / width)
  w = {slot = slot, sum = 0}
  for i = 0, SLOTS - 1 do w[i] = 0 end
  if v then
    local last, old = un('>I8', v), {un('>' .. string.rep('I4', SLOTS), v, 9)}
    if last - slot < SLOTS then
      w.slot = max(slot, last)
      for i = 0, SLOTS - 1 do
        if (w.slot - i) % SLOTS >= w.slot - last then
          w[i] = old[i + 1]
          w.sum = w.sum + w[i]
        end
      end
    end
  end
  windows[field] = w
  return w
end

local function opens_at(w, most, width)
  local left = w.sum
  for slot = w.slot - SLOTS + 1, w.slot do
    if left < most then return slot > w.slot - SLOTS + 1 and (slot - 1 + SLOTS) * width or nil end
    left = left - w[slot % SLOTS]
  end
  return (w.slot + SLOTS) * width
end

local function running_of(kind, name)
  if kind == 'queue' then return tonumber(call('HGET', P .. 's', name .. '|running') or 0) end
  return tonumber(call('HGET', P .. 'taskruns', name) or 0)
end

-- A task whose breaker is open has an entry in `probes`: when the next probe may start (0 is never), microseconds between probes, and
-- the lease and id of the last one.
local any_breaker = call('EXISTS', P .. 'probes') == 1

local function probe_of(task)
  local v = any_breaker and call('HGET', P .. 'probes', task)
  if not v then return nil end
  return un('>I8I8I8', v)
end

-- The places that a limit leaves, nil when there is no limit; and when its rate lets the next job start, if that keeps jobs back.
local function limit_room(kind, name)
  local r = rule(kind, name)
  local f = r and r.force
  if not f or f.per_group or (not f.running and not f.starts) then return nil end
  local places, opens = nil, nil
  if f.running then places = f.running - running_of(kind, name) end
  if f.starts then
    local w = window(kind, name, f.width)
    places = min(places or f.starts, f.starts - w.sum)
    opens = opens_at(w, f.starts, f.width)
  end
  return max(0, places), opens
end

-- The places that a limit per group leaves of a group, nil when there is none; and when its rate lets the next job start. What the
-- script has counted so far counts.
local function group_room(task, group)
  local f = group_rule(task)
  if not f then return nil end
  local name = task .. '|' .. group
  local places, opens = nil, nil
  if f.running then
    local more = counts.groupruns and counts.groupruns[name] or 0
    places = f.running - tonumber(call('HGET', P .. 'groupruns', name) or 0) - more
  end
  if f.starts then
    local w = window('group', name, f.width)
    places = min(places or f.starts, f.starts - w.sum)
    opens = opens_at(w, f.starts, f.width)
  end
  return max(0, places), opens
end

-- The same, with what an open breaker leaves: one place when a probe is due, else none.
local function room_under(kind, name)
  local places, opens = limit_room(kind, name)
  local probe_at = kind == 'task' and probe_of(name)
  if not probe_at then return places, opens end
  if probe_at > 0 and probe_at <= now then return min(1, places or 1), opens end
  return 0, probe_at > 0 and probe_at or nil
end

-- A claim has taken a job of a task whose breaker is open.
local function note_probe(task, id, lease)
  local probe_at, every = probe_of(task)
  if probe_at then call('HSET', P .. 'probes', task, pk('>I8I8I8', now + every, every, lease) .. id) end
end

local function is_shut(kind, name)
  local places, opens = room_under(kind, name)
  return places ~= nil and places <= 0, opens
end

local function write_window(kind, field, w)
  local counts = {}
  for i = 0, SLOTS - 1 do counts[i + 1] = w[i] end
  call('HSET', P .. (kind == 'group' and 'groupstarts' or 'starts'), field, pk('>I8' .. string.rep('I4', SLOTS), w.slot, unpack(counts)))
end

local function count_starts(kind, name, width, count)
  local w = window(kind, name, width)
  w[w.slot % SLOTS] = w[w.slot % SLOTS] + count
  w.sum = w.sum + count
  write_window(kind, kind .. '|' .. name, w)
end

-- Jobs of a queue or task start.
local function note_starts(kind, name, count)
  local r = rule(kind, name)
  if r and r.force and r.force.starts and not r.force.per_group then count_starts(kind, name, r.force.width, count) end
end

-- Jobs of a group start; the last one of an ordered group is its head.
local function start_in_group(task, group, ids)
  local f = group_rule(task)
  if not f then return end
  if f.starts then count_starts('group', task .. '|' .. group, f.width, #ids) end
  if f.ordered then call('HSET', P .. 'groupheads', task .. '|' .. group, ids[#ids]) end
end
