-- KEYS[1], ARGV: as in claim.lua.
-- Returns: 'expired' as claim.lua does, else nothing; a part of that script.
-- Reads the jobs of the lanes that a claim may take, in their order, and passes over those that are too late.
local limit, worker, lease_for, turn = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local room, left_tasks, left_jobs = cmsgpack.unpack(ARGV[6]), {}, {}
for _, task in ipairs(cmsgpack.unpack(ARGV[7])) do left_tasks[task] = true end
for i = 1, #ARGV[8], 16 do left_jobs[sub(ARGV[8], i, i + 15)] = true end
-- To pass over an entry costs as much as to claim one: a script that passes more of them ends, and the next goes on.
local CHUNK, STALE_LOOKED_AT, LATE_LOOKED_AT, ASIDE = min(max(limit, 1), 512), 1000, 1000, 9000000000000000
if now < tonumber(call('GET', P .. 'clock') or 0) then note_time() end
local any_late = call('ZCOUNT', P .. 'expiries', '-inf', num(now)) > 0
if any_late and ARGV[9] == '' then return 'expired' end
if any_late then CHUNK = 512 end

local sources = {}

-- How many late jobs this claim has met, and whether it gave up a lane for there being too many.
local late = {met = 0, cut = false}

-- For each of these entries, whether its job is past its expiry. The id stands from there on.
function late.among(entries, from, step)
  local ids, is_late = {}, {}
  for i = 1, #entries, step do ids[#ids + 1] = sub(entries[i], from) end
  if #ids == 0 then return is_late end
  for i, score in ipairs(call('ZMSCORE', P .. 'expiries', unpack(ids))) do is_late[i] = score and tonumber(score) <= now end
  return is_late
end

-- Late jobs wait for their cancel where no claim looks: it passes each of them once, however many there are.
function late.put_aside(key, members)
  local scored = {}
  for _, member in ipairs(members) do
    scored[#scored + 1] = num(ASIDE)
    scored[#scored + 1] = member
  end
  many('ZADD', key, scored)
end

function late.put_aside_of(number, kind, key, members)
  if #members == 0 then return end
  late.met = late.met + #members
  late.put_aside(key, members)
  if UNGROUPED[kind] then late.put_aside(place(number, kind), members) end
end

local function read_fresh(src)
  local buf = {}
  repeat
    local got = fresh_lane.read(src, CHUNK)
    local gone = src.stale > 0 and #got > 0 and fresh_stale(got)
    local is_late = any_late and late.among(got, 17, 1)
    local plain = not gone and not is_late and next(left_jobs) == nil and #set_back_times() == 0
    if plain then
      local at = src.at
      for i, e in ipairs(got) do
        local due, seq = un('>I8I8', e)
        buf[i] = {due < now and due or now, seq, sub(e, 17), src, at + i}
      end
      src.at = at + #got
    end
    for i, e in ipairs(plain and {} or got) do
      local id = sub(e, 17)
      src.at = src.at + 1
      if gone and gone[i] then
        src.passed[#src.passed + 1] = {src.at, e}
      elseif is_late and is_late[i] then
        src.passed[#src.passed + 1] = {src.at, e, 'late'}
      elseif left_jobs[id] then
        src.passed[#src.passed + 1] = {src.at, e, true}
      else
        local due, seq = un('>I8I8', e)
        buf[#buf + 1] = {min(effective(due, seq), now), seq, id, src, src.at}
      end
    end
    src.cut = #got == CHUNK and src.at > STALE_LOOKED_AT
  until #buf > 0 or #got < CHUNK or src.cut
  return buf
end

local function read_set(src)
  local buf = {}
  repeat
    local got = call('ZRANGEBYSCORE', src.key, '-inf', num(now), 'WITHSCORES', 'LIMIT', src.at, CHUNK)
    local is_late, aside = any_late and late.among(got, 9, 2), {}
    for i = 1, #got, 2 do
      local id = sub(got[i], 9)
      if is_late and is_late[(i + 1) / 2] then aside[#aside + 1] = got[i]
      elseif not left_jobs[id] then buf[#buf + 1] = {tonumber(got[i + 1]), un('>I8', got[i]), id, src, got[i]} end
    end
    late.put_aside_of(src.lane, src.kind, src.key, aside)
    src.at = src.at + #got / 2 - #aside
    if #buf == 0 and #got == 2 * CHUNK and late.met > LATE_LOOKED_AT then late.cut = true end
  until #buf > 0 or #got < 2 * CHUNK or late.cut
  return buf
end

local function peek(src)
  if src.i > #src.buf and not src.over then
    src.buf, src.i = src.kind == FRESH and read_fresh(src) or read_set(src), 1
    src.over = #src.buf == 0
  end
  return src.buf[src.i]
end

-- Whether a limit leaves anything of a task. What it leaves bounds the room of the task.
local bounded = {}

local function has_room(task)
  if not any_limit and not any_breaker then return true end
  if bounded[task] == nil then
    local places = room_under('task', task)
    if places then room[task] = min(places, room[task] or places) end
    bounded[task] = not places or places > 0
  end
  return bounded[task]
end

local function source(number, kind, key, task)
  local src = {key = key, lane = number, kind = kind, task = task, at = 0, buf = {}, i = 1, taken = {}, passed = {}, stale = 0}
  local plain = UNGROUPED[kind] or kind
  src.waited = plain == TIMED or plain == RETRYING
  sources[#sources + 1] = src
  return src
end

-- The lanes of a queue that hold jobs of tasks that may run, by priority, highest first. A level with groups has `lanes`: numbers of
-- the lanes that do, with their tasks.
local function levels(queue)
  if paused('queue', queue) then return {} end
  local by, out = {}, {}
  for _, field in ipairs(call('HKEYS', P .. 'n:' .. queue)) do
    local p, number, kind = match(field, '^(%d)|(%d+)|(%w)$')
    number = tonumber(number)
    local task = lane(number).t
    if not left_tasks[task] and not paused('task', task) and has_room(task) then
      local level = by[p] or {}
      by[p] = level
      if UNGROUPED[kind] then
        level.lanes, level.queue, level.p = level.lanes or {}, queue, p
        level.lanes[number] = task
      else
        local src = source(number, kind, place(number, kind), task)
        if kind == FRESH then src.stale = tonumber(call('HGET', P .. 'stale', num(number)) or 0) end
        level[#level + 1] = src
      end
    end
  end
  for p = 9, 0, -1 do out[#out + 1] = by[tostring(p)] end
  return out
end

-- Whether a source may give more: its task has room, and so has its group.
local function may_give(src) return (room[src.task] or 1) > 0 and (not src.own or src.own.left > 0) end

local function fill(taken, from, places, due_by)
  while places > 0 do
    local best, first
    for _, src in ipairs(from) do
      if may_give(src) then
        local e = peek(src)
        if e and e[1] <= due_by and (not first or e[1] < first[1] or (e[1] == first[1] and e[2] < first[2])) then best, first = src, e end
      end
    end
    if not best then return end
    -- Nothing to compare and nothing to count.
    if #from == 1 and not best.own and not room[best.task] then
      local t, n = best.taken, #taken
      while places > 0 and first and first[1] <= due_by do
        n, places = n + 1, places - 1
        taken[n], t[#t + 1] = first, first
        best.i = best.i + 1
        first = places > 0 and (best.buf[best.i] or peek(best))
      end
      return
    end
    repeat -- while it is the only lane there is nothing to compare
      taken[#taken + 1] = first
      best.taken[#best.taken + 1] = first
      best.i, places = best.i + 1, places - 1
      if room[best.task] then room[best.task] = room[best.task] - 1 end
      if best.own then best.own.left = best.own.left - 1 end
      first = #from == 1 and places > 0 and may_give(best) and peek(best)
    until not first or first[1] > due_by
  end
end

local function by_due(x, y) return x[1] < y[1] or (x[1] == y[1] and x[2] < y[2]) end

local chosen, opened, most = {}, {}, {}

-- Half of the places, the odd one every second time, go first to jobs that had to wait for their time and are overdue.
local function pick(from, places, odd)
  local taken, waited = {}, {}
  for _, src in ipairs(from) do if src.waited then waited[#waited + 1] = src end end
  if #waited > 0 then fill(taken, waited, floor((places + odd % 2) / 2), now - OVERDUE) end
  fill(taken, from, places - #taken, now)
  if #from > 1 then table.sort(taken, by_due) end
  return taken
end

