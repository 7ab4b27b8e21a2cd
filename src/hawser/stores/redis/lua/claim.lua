-- KEYS[1]: prefix. ARGV: now, limit, worker, lease in microseconds, turn, room (msgpack map), tasks to leave (msgpack list),
-- jobs to leave (ids joined), '1' to pass over jobs that are past their expiry or '', then queue, places ('' is all), most ('' is any) for each share.
-- Returns: 'expired' when jobs are past their expiry and not to be passed over: some are to be cancelled first. 'again' when all that was looked at
-- was dropped or put aside, and there is more. Else for each job id(16) lease(8) attempt(4) crashes(4) due(8); its header, meta and body; and its lane.
-- Takes due jobs under a lease. A claim that finds nothing writes nothing: each write would cost a sync.
-- uses: counts lanes fresh_lists records turns clock pauses audit limits rooms group_order
local limit, worker, lease_for, turn = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local room, left_tasks, left_jobs = cmsgpack.unpack(ARGV[6]), {}, {}
for _, task in ipairs(cmsgpack.unpack(ARGV[7])) do left_tasks[task] = true end
for i = 1, #ARGV[8], 16 do left_jobs[sub(ARGV[8], i, i + 15)] = true end
local CHUNK, STALE_LOOKED_AT, LATE_LOOKED_AT, ASIDE = min(max(limit, 1), 512), 10000, 10000, 9000000000000000
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
    for i, e in ipairs(got) do
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
  level.visited, level.again, level.seen, level.rings = {}, {}, {}, {}
  for number, task in pairs(level.lanes) do
    wake(number)
    table.insert(level.rings, {key = P .. 'turn:' .. num(number), task = task, buf = {}, i = 1, at = 0})
  end
  local known = call('HGET', P .. 'plainturns', level.queue .. '|' .. level.p)
  level.plain = {name = '', turn = 0, served = 0, weight = 1, sources = level}
  if known then level.plain.turn, level.plain.served = un('>I8I8', known) end
  level.opened = true
end

-- The first group of a lane that this claim has not met: turn and name.
local function ring_head(ring)
  if ring.i > #ring.buf then
    ring.buf, ring.i = call('ZRANGE', ring.key, ring.at, ring.at + CHUNK - 1, 'WITHSCORES'), 1
    ring.at = ring.at + #ring.buf / 2
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

-- What a limit per group leaves to this claim, in whatever queue it takes jobs of the group; false when there is none.
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
    if call('EXISTS', key) == 1 then
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
  local served = tonumber(call('HGET', P .. 'served:' .. level.queue .. '|' .. level.p, name) or 0)
  local weight = tonumber(call('HGET', P .. 'weights', level.queue .. '|' .. name) or 1)
  return {name = name, turn = turn, served = served, weight = weight, sources = from}
end

-- The group whose turn it is, of those that were not given yet; not for tasks without room.
local function first_group(level)
  while true do
    local best, turn, name
    for _, ring in ipairs(level.rings) do
      if (room[ring.task] or 1) > 0 then
        local t, g = ring_head(ring)
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
    if group.moved then call('ZADD', turns, num(group.turn), group.name) end
    return
  end
  call('ZREM', turns, group.name)
  if at then call('ZADD', later, num(at), group.name) else call('ZREM', later, group.name) end
  if shut or not at then call('HSET', P .. 'kept:' .. num(number), group.name, shut and '1' or '0') end
end

-- After the jobs were taken: visited groups go to their new turns.
local function close_level(level)
  for _, group in ipairs(level.visited) do
    if group.name == '' then
      if group.changed then call('HSET', P .. 'plainturns', level.queue .. '|' .. level.p, pk('>I8I8', group.turn, group.served)) end
    else
      local kept = false
      for number, task in pairs(level.lanes) do
        local due = next_due_of(number, group.name)
        if not due then
          forget_group(number, group.name)
        else
          kept = true
          put_group(number, task, group, due)
        end
      end
      if kept and group.changed then call('HSET', P .. 'served:' .. level.queue .. '|' .. level.p, group.name, num(group.served)) end
    end
  end
end

-- Of the levels below the first that has a due job, the one that has aged most.
local function aged_level(from)
  local first, best, oldest = true, nil, now - AGED
  for _, level in ipairs(from) do
    local due = due_since(level)
    if due and not first and (due < oldest or (due == oldest and not best)) then best, oldest = level, due end
    if due then first = false end
  end
  return best
end

-- A tenth of the places goes first to a lower priority that has waited for very long.
local function take_aged(from, places)
  local level = places > 0 and #from > 1 and aged_level(from)
  if not level then return 0 end
  local taken = {}
  if level.lanes then taken = take_turns(level, places) else fill(taken, level, places, now - AGED) end
  for _, e in ipairs(taken) do chosen[#chosen + 1] = e end
  return #taken
end

local function offer(queue, places)
  places = min(places, most[queue] or places)
  if places <= 0 then return end
  if not opened[queue] then opened[queue] = levels(queue) end
  local got = take_aged(opened[queue], floor((places + turn % 10) / 10))
  for _, level in ipairs(opened[queue]) do
    local want = places - got
    if want <= 0 then break end
    local taken = level.lanes and take_turns(level, want) or pick(level, want, turn)
    for _, e in ipairs(taken) do chosen[#chosen + 1] = e end
    got = got + #taken
  end
  if most[queue] then most[queue] = most[queue] - got end
end

local shares = {}
for i = 10, #ARGV, 3 do
  shares[#shares + 1] = {ARGV[i], tonumber(ARGV[i + 1])}
  local places = any_limit and room_under('queue', ARGV[i])
  most[ARGV[i]] = tonumber(ARGV[i + 2])
  if places then most[ARGV[i]] = min(places, most[ARGV[i]] or places) end
end
for _, share in ipairs(shares) do
  local free = limit - #chosen
  offer(share[1], share[2] and min(free, share[2]) or free)
end
for _, share in ipairs(shares) do offer(share[1], limit - #chosen) end

-- An entry without a job is what an enqueue has left that broke off. It goes before anything else is written, and is no longer in the way;
-- it was never counted.
local ids, orphans = {}, false
for i, e in ipairs(chosen) do ids[i] = e[3] end
local b, m = fetch('b:', ids), fetch('m:', ids)
for i, e in ipairs(chosen) do
  if not b[ids[i]] then
    local src = e[4]
    orphans = true
    if src.kind == FRESH then call('HINCRBY', P .. 'stale', num(src.lane), 1)
    else
      call('ZREM', src.key, e[5])
      call('ZREM', place(src.lane, src.kind), e[5])
    end
  end
end
if orphans then return 'again' end

-- Entries up to the last one taken go; those passed over for being left to others wait on.
for _, src in ipairs(sources) do
  if src.kind == FRESH then
    local count, left, gone, aside = #src.taken > 0 and src.taken[#src.taken][5] or 0, {}, {}, {}
    for _, p in ipairs(src.passed) do
      if p[1] == count + 1 and p[3] ~= true and #src.taken == 0 then count = p[1] end
      if p[1] <= count then
        local those = p[3] == true and left or gone
        those[#those + 1] = p[2]
        if p[3] == 'late' then aside[#aside + 1] = sub(p[2], 9) end
      end
    end
    if count > 0 then
      fresh_lane.take(src.lane, worker, #src.taken, left, gone)
      late.cut = late.cut or src.cut
    end
    if #gone > #aside then add('stale', num(src.lane), #aside - #gone) end
    if #aside > 0 then
      late.put_aside(place(src.lane, PAST), aside)
      waits(src.lane, FRESH, -#aside)
      waits(src.lane, PAST, #aside)
    end
  elseif #src.taken > 0 then
    local members = {}
    for i, e in ipairs(src.taken) do members[i] = e[5] end
    many('ZREM', src.key, members)
    if UNGROUPED[src.kind] then many('ZREM', place(src.lane, src.kind), members) end
  end
  if #src.taken > 0 then
    local l = lane(src.lane)
    waits(src.lane, src.kind, -#src.taken)
    tally(l.q, l.t, 'claimed', #src.taken)
    add('s', l.q .. '|running', #src.taken)
    if any_limit then
      count_runs(l, #src.taken, src.group)
      if src.group then
        local started = {}
        for i, e in ipairs(src.taken) do started[i] = e[3] end
        start_in_group(l.t, src.group, started)
      end
      note_starts('queue', l.q, #src.taken)
      note_starts('task', l.t, #src.taken)
    end
  end
end
for _, opened_levels in pairs(opened) do
  for _, level in ipairs(opened_levels) do if level.opened then close_level(level) end end
end
if #chosen == 0 then
  flush()
  return late.cut and 'again' or {}
end
note_time()

-- After a failover the numbers given out last may be lost. A server that is not the one that claimed last gives out higher ones
-- than any before.
local EPOCH = 65536
local info = call('INFO', 'replication')
local server, before = match(info, 'master_replid:(%w+)'), match(info, 'master_replid2:(%w+)')
local last = call('HGET', P .. 'epoch', 'server')
local base = tonumber(call('HGET', P .. 'epoch', 'base') or 0)
if last ~= server then
  if last then base = base + EPOCH end
  call('HSET', P .. 'epoch', 'server', server, 'base', num(base), 'since', num(now))
  -- A restart has a new id, too; at a promotion the old one is kept as the second.
  if last and last == before then
    call('HINCRBY', P .. 'epoch', 'failovers', 1)
    audit('store', 'failover', 'store', 0,
      'a replica was promoted: what the old primary had accepted and not sent to it is lost', '')
  end
end

local claim = call('INCR', P .. 'claims')
local out, writes, first, alike = {}, {}, now + lease_for, {}
for i, e in ipairs(chosen) do
  local id, v = e[3], b[e[3]]
  local timeout, _, number = un('>I8I4I4', v, 25)
  local given = min(lease_for, timeout + GRACE)
  local old, lease, attempt, crashes = m[id], base + 1, 1, 0
  first = min(first, now + given)
  local written
  if old then
    local r = record(old)
    lease, attempt, crashes = max(r.lease, base) + 1, r.attempt + 1, r.crashes
    r.state, r.asked, r.lease, r.attempt, r.until_, r.given, r.started, r.claim, r.run_at, r.finished, r.worker =
      RUNNING, 0, lease, attempt, now + given, given, now, claim, e[1], 0, ''
    written = packed(r)
  else
    local kind = byte(v, HEADLEN - 1)
    local name = num(given) .. '|' .. num(number) .. '|' .. num(e[1]) .. '|' .. kind
    written = alike[name]
    if not written then
      written = pk(REC, RUNNING, kind, 0, 0, lease, 1, 0, 0, 0, now + given, given, now, claim, e[1], 0, number)
      alike[name] = written
    end
  end
  local k = bucket(id)
  local w = writes[k]
  if not w then w = {} writes[k] = w end
  w[#w + 1] = id
  w[#w + 1] = written
  if any_breaker then note_probe(lane(number).t, id, lease) end
  out[3 * i - 2] = id .. pk('>I8I4I4I8', lease, attempt, crashes, e[1])
  out[3 * i - 1] = v
  out[3 * i] = lane(number).text
end
for k, w in pairs(writes) do many('HSET', P .. 'm:' .. k, w) end
call('HSET', P .. 'c:' .. num(claim), 'worker', worker, 'ids', table.concat(ids), 'open', #ids)
call('ZADD', P .. 'leases', num(first), num(claim))
flush()
return out
