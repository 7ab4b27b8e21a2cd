-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that obey limits, or count what they count.
-- Says what limits and breakers leave of a queue or task.
-- `rules` has for each limited queue and task what code declares and what an operator chose. `starts` has the starts of the last period:
-- the last slot, then sixteen counts. `taskruns` has how many jobs of a limited task run; `s` has it for queues.
local SLOTS = 16
local any_limit = call('EXISTS', P .. 'rules') == 1
local rules, windows = {}, {}

-- What is said of a queue or task, and what of it is in force; false when that is nothing.
local function rule(kind, name)
  if not any_limit then return false end
  local field = kind .. '|' .. name
  local r = rules[field]
  if r == nil then
    local v = call('HGET', P .. 'rules', field)
    r = v and cmsgpack.unpack(v) or false
    if r then r.force = r.chosen or r.declared end
    rules[field] = r
  end
  return r
end

-- The starts of the last period as of now. A clock that went back by less than the window goes on in the last slot; by more, the
-- starts are dropped.
local function window(kind, name, width)
  local field = kind .. '|' .. name
  local w = windows[field]
  if w then return w end
  local v, slot = call('HGET', P .. 'starts', field), floor(now / width)
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
  if not f or (not f.running and not f.starts) then return nil end
  local places, opens = nil, nil
  if f.running then places = f.running - running_of(kind, name) end
  if f.starts then
    local w = window(kind, name, f.width)
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

local function write_window(field, w)
  local counts = {}
  for i = 0, SLOTS - 1 do counts[i + 1] = w[i] end
  call('HSET', P .. 'starts', field, pk('>I8' .. string.rep('I4', SLOTS), w.slot, unpack(counts)))
end

-- Jobs of a queue or task start.
local function note_starts(kind, name, count)
  local r = rule(kind, name)
  if not r or not r.force or not r.force.starts then return end
  local w = window(kind, name, r.force.width)
  w[w.slot % SLOTS] = w[w.slot % SLOTS] + count
  w.sum = w.sum + count
  write_window(kind .. '|' .. name, w)
end

-- Runs of a task begin or end. Says whether a limit counts them.
local function count_runs(l, by)
  if not any_limit then return false end
  if rule('task', l.t) then
    add('taskruns', l.t, by)
    return true
  end
  return rule('queue', l.q) and true
end
