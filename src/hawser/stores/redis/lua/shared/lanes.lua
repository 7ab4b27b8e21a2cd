-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that touch lanes.
-- A lane is a queue, a task and a priority, known by a number; its jobs wait in a list or a stream (fresh) and
-- in sorted sets (the others).
local lanes = {}

local function split(text)
  local q, t, p = match(text, '^([^|]*)|([^|]*)|(%d)$')
  return {q = q, t = t, p = p}
end

local function lane(number)
  local l = lanes[number]
  if not l then
    l = split(call('HGET', P .. 'lanename', num(number)))
    l.n, l.text = number, l.q .. '|' .. l.t .. '|' .. l.p
    lanes[number] = l
  end
  return l
end

local function place(number, kind) return P .. 'l:' .. num(number) .. ':' .. kind end

-- A job comes to wait (+1) or waits no longer (-1).
local function waits(number, kind, by)
  local l = lane(number)
  add('n:' .. l.q, l.p .. '|' .. num(number) .. '|' .. kind, by)
end

local fresh = {past = {}, counts = {}}

-- Whether fresh jobs of a lane may stand in its sorted set.
function fresh.has_past(number)
  if fresh.past[number] == nil then fresh.past[number] = call('EXISTS', place(number, PAST)) == 1 end
  return fresh.past[number]
end

-- How many jobs a fresh lane has, with what this script has counted so far.
function fresh.left(number)
  local l, known = lane(number), fresh.counts[number]
  local key, field = 'n:' .. l.q, l.p .. '|' .. num(number) .. '|' .. FRESH
  if not known or known.flushes ~= writes.flushes then
    known = {count = tonumber(call('HGET', P .. key, field) or 0), flushes = writes.flushes}
    fresh.counts[number] = known
  end
  return known.count + (counts[key] and counts[key][field] or 0)
end

-- The clock was set back: what was due by then is due since that moment, in the order in which it came.
local backs

local function set_back_times()
  if not backs then
    backs = {}
    for i, v in ipairs(call('LRANGE', P .. 'backs', 0, -1)) do backs[i] = {un('>I8I8I8', v)} end
  end
  return backs
end

local function effective(due, seq)
  for _, b in ipairs(set_back_times()) do
    if seq <= b[3] and due > b[1] and due <= b[2] then due = b[1] end
  end
  return due
end

local function entry_due(entry) return effective(un('>I8I8', entry)) end

-- For each entry of a fresh lane, whether its job waits here no longer. The entry of a cancelled job stays until it comes to the front.
-- By then the job may have been removed, and its id may have been given to a new job, which has an entry of its own.
local function fresh_stale(entries)
  local ids, stale = {}, {}
  for i, e in ipairs(entries) do ids[i] = sub(e, 17) end
  local b, m = fetch(ids, 'b:', 'm:')
  for i, e in ipairs(entries) do
    local v = b[i]
    stale[i] = not v or m[i] or sub(v, 17, 24) ~= sub(e, 9, 16)
  end
  return stale
end
