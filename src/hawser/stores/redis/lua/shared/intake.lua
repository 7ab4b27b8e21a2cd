-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that add jobs.
-- Which of the jobs that arrive are added, and what is answered. Everything is judged before anything is written.
-- A job arrives as id(16) flags(1) priority(1) timeout(8) when(8) most(4) lengths of queue(1) task(1) meta(4), then these and the body.
-- Between task and meta stand the length(4) and the ids of the jobs that it waits for, if there are any.
local AT_TIME, SCHEDULED, WAITS, ANY_END, WITH_EXPIRY = 4, 8, 16, 32, 64
local FAR = 9000000000000000
-- Jobs and batches that stand otherwise than before (id, state, why those are cancelled that wait if it is removed, whether it died, whether
-- it is a batch), and new jobs that wait for what cannot be waited for.
local over, doomed = {}, {}
-- How debounced jobs are judged; filled where they are.
local debounce = {}

-- Neighbours mostly come to the same lane.
local lane_named
do
  local last
  function lane_named(queue, task, priority)
    if last and last.q == queue and last.t == task and last.p == priority then return last end
    local text = queue .. '|' .. task .. '|' .. priority
    last = lanes[text]
    if not last then
      local number = call('HGET', P .. 'lanes', text)
      last = {q = queue, t = task, p = priority, text = text, n = tonumber(number)}
      lanes[text] = last
      if number then lanes[last.n] = last end
    end
    return last
  end
end

local function number_of(l)
  if not l.n then
    l.n = call('INCR', P .. 'lanecount')
    call('HSET', P .. 'lanes', l.text, l.n)
    call('HSET', P .. 'lanename', l.n, l.text)
    lanes[l.n] = l
  end
  return l.n
end

-- One that waits for others, is in a batch or is debounced is special.
local function arriving(text)
  local flags, priority, timeout, when, most, ql, tl, ml = un('>BBI8I8I4BBI4', text, 17)
  local at = 45
  local queue, task = sub(text, at, at + ql - 1), sub(text, at + ql, at + ql + tl - 1)
  at = at + ql + tl
  local waits_for
  if floor(flags / WAITS) % 2 == 1 then
    local length = un('>I4', text, at)
    waits_for = {}
    for i = at + 4, at + 3 + length, 16 do waits_for[#waits_for + 1] = sub(text, i, i + 15) end
    at = at + 4 + length
  end
  local j = {id = sub(text, 1, 16), lane = lane_named(queue, task, char(48 + priority)), timeout = timeout, when = when, most = most,
    metalen = ml, rest = sub(text, at), flags = flags, waits_for = waits_for,
    on = floor(flags / (4 * ANY_END)) % 2 == 1 and 2 or floor(flags / ANY_END) % 2, meta = nil, batch = nil}
  if ml > 0 then
    j.meta = cmsgpack.unpack(sub(text, at, at + ml - 1))
    j.batch = j.meta.b and batches.id_of(j.meta.b)
    if j.batch or j.meta.d then batches.special = true end
  end
  if waits_for then batches.special = true end
  return j
end

local function body_of(v, h) return sub(v, HEADLEN + h.meta + 1) end

-- What to answer for each job, and which to add; or a refusal: {'conflict', id} or {'differs', id, body, …}.
local function sort_out(jobs, strict, same)
  local ids, answers, fresh, added, taken, differs = {}, {}, {}, {}, {}, {'differs'}
  for i, j in ipairs(jobs) do ids[i] = j.id end
  local known, held_by = fetch(ids, 'b:'), holds.of(jobs)
  for i, j in ipairs(jobs) do
    local v, first = known[i], added[j.id]
    if v or first then
      if strict then
        local h = v and head(v)
        local l = h and lane(h.lane) or first.lane
        if l.q ~= j.lane.q or l.t ~= j.lane.t then return nil, {'conflict', j.id} end
        local stands = v and body_of(v, h) or sub(first.rest, first.metalen + 1)
        if stands ~= sub(j.rest, j.metalen + 1) and not (same and same[j.id]) then
          differs[#differs + 1] = j.id
          differs[#differs + 1] = stands
        end
      end
      answers[i] = '0' .. j.id
    else
      local key = j.meta and j.meta.k
      local other, judged, free
      if key then
        local name = j.lane.q .. '|' .. j.lane.t .. '|' .. key
        if j.meta.d and debounce.judge then judged, free = debounce.judge(j) end
        other = taken[name] or (not free and holder(j.lane.q, j.lane.t, key, held_by[i]) or nil)
        if not judged then taken[name] = other or j.id end
      end
      if judged then answers[i] = judged
      elseif other then answers[i] = '0' .. other
      else
        answers[i] = '1' .. j.id
        added[j.id] = j
        fresh[#fresh + 1] = j
      end
    end
  end
  if #differs > 1 then return nil, differs end
  return answers, fresh
end

local function waiting(queue)
  local n = 0
  for _, count in ipairs(call('HVALS', P .. 'n:' .. queue)) do n = n + count end
  return n
end

-- A refusal when a queue would wait deeper than its limit.
local function too_deep(fresh)
  if #fresh == 0 or call('EXISTS', P .. 'limits') == 0 then return nil end
  local coming = {}
  for _, j in ipairs(fresh) do coming[j.lane.q] = (coming[j.lane.q] or 0) + 1 end
  for queue, n in pairs(coming) do
    local most = tonumber(call('HGET', P .. 'limits', queue) or -1)
    if most >= 0 then
      local depth = waiting(queue)
      if depth + n > most then return {'full', queue, depth, most} end
    end
  end
  return nil
end

local function attempts_of(queue, cache)
  if not cache[queue] then cache[queue] = tonumber(call('HGET', P .. 'maxes', queue) or 5) end
  return cache[queue]
end

-- How a job or a batch stands that others wait for: its state, whether it died, whether it is a batch; nil when it is not there.
function batches.standing(id)
  local v, m = values_of(id)
  if v then
    local state = m and byte(m) or READY
    return state, state == DEAD, false
  end
  local b = any_held and batches.read(id)
  if b then return batches.job_state(b), b.died, true end
end

-- What of others a job waits for: 0 that they are done, 1 that they have ended, 2 a death.
local function is_over(state, died, on)
  if on == 2 then return died end
  return state == DONE or (on == 1 and state > RUNNING)
end

-- Why a job is cancelled that waits for what stands so; nil when it is not.
function batches.dooms(state, died, on)
  if on == 0 and state == CANCELLED then return 'is cancelled' end
  if on == 2 and state > RUNNING and not died then return 'ended without a dead job' end
end

-- The jobs that a job waits for; where a key is held, the holder in place of the job that was not added.
local function upstream_of(j, stands_for)
  local ids, seen = {}, {}
  for _, id in ipairs(j.waits_for) do
    id = stands_for[id] or id
    if not seen[id] then ids[#ids + 1] = id end
    seen[id] = true
  end
  return ids
end

local function standing_for(jobs, answers)
  local stands_for = {}
  for i, j in ipairs(jobs) do
    if sub(answers[i], 2) ~= j.id then stands_for[j.id] = sub(answers[i], 2) end
  end
  return stands_for
end

-- A refusal when a job waits for one that is not there.
local function unknown_upstream(fresh, stands_for)
  local coming, unknown, asked = {}, {'unknown'}, {}
  if not batches.special then return nil end
  for _, j in ipairs(fresh) do coming[j.id] = true end
  for _, j in ipairs(fresh) do
    for _, id in ipairs(j.waits_for or {}) do asked[#asked + 1] = stands_for[id] or id end
  end
  look_ahead(asked)
  for _, j in ipairs(fresh) do
    for _, id in ipairs(j.waits_for and upstream_of(j, stands_for) or {}) do
      if not coming[id] and not batches.standing(id) then unknown[#unknown + 1] = id end
    end
  end
  return #unknown > 1 and unknown or nil
end

-- Sort out what each job waits for, before any is written: the jobs that are left, or the one because of which it is to be cancelled.
local function sort_waits(fresh, stands_for)
  if not batches.special then return end
  local coming = {}
  for _, j in ipairs(fresh) do coming[j.id] = true end
  for _, j in ipairs(fresh) do
    if j.waits_for then
      local ids = upstream_of(j, stands_for)
      j.left, j.total = {}, #ids
      for _, id in ipairs(ids) do
        local state, died, is_batch
        if not coming[id] then state, died, is_batch = batches.standing(id) end
        local end_ = state and batches.dooms(state, died, j.on)
        if coming[id] then j.left[#j.left + 1] = id
        elseif not state then j.doomed = j.doomed or {j.id, id, 'this store does not have'}
        elseif end_ then j.doomed = j.doomed or {j.id, id, end_, is_batch}
        elseif not is_over(state, died, j.on) then j.left[#j.left + 1] = id end
      end
      if #j.left == 0 and not j.doomed then j.left = nil end
    end
  end
end

local function hold_back(j, due)
  any_held = true
  local hold = floor(j.flags / AT_TIME) % 2 == 1 and -due or due - now
  -- A worker of the release before takes any number for true: only what waits for batches, which it does not end, may have one.
  writes.later('HSET', P .. 'held', j.id, cmsgpack.pack({hold, j.total, j.on == 1 or (j.on == 2 and 2)}))
  add('s', j.lane.q .. '|held', 1)
  if j.doomed then
    doomed[#doomed + 1] = j.doomed
    return
  end
  many('SADD', P .. 'd:' .. j.id, j.left)
  for _, id in ipairs(j.left) do writes.later('SADD', P .. 'w:' .. id, j.id) end
end

-- A held job is released, or comes to its end.
local function no_longer_held(id, queue)
  call('HDEL', P .. 'held', id)
  call('UNLINK', P .. 'd:' .. id)
  add('s', queue .. '|held', -1)
end

-- A refusal when a job is to be added to a batch that takes no more.
function batches.refused(jobs, answers)
  local open
  for i, j in ipairs(jobs) do
    local id = j.batch and sub(answers[i], 2)
    if j.batch and (sub(answers[i], 1, 1) == '1' or (id ~= j.id and not batches.counts(j.batch, id))) then
      local why = j.batch ~= open and batches.against(j.batch)
      if why then return {'batch', j.batch, why} end
      open = j.batch
    end
  end
  circles.found, circles.links = {}, {}
  local upstream = batches.special and circles.upstream_of(jobs, answers, standing_for(jobs, answers)) or {}
  for _, j in ipairs(jobs) do
    local why, id
    if j.batch and upstream[j.id] then why, id = circles.judge(j.batch, upstream[j.id]) end
    if why then return {why, j.batch, id} end
  end
end

-- Where the key of a job of a batch is held, the holder counts, unless the job is among those refused. One that is not kept was done.
function batches.join_holders(jobs, answers, refused)
  for i, j in ipairs(jobs) do
    local id = sub(answers[i], 2)
    if j.batch and id ~= j.id and not (refused and refused[j.id]) and not batches.counts(j.batch, id) and batches.read(j.batch) then
      batches.join(j.batch, id, batches.standing(id) or DONE)
    end
  end
end

-- Jobs that follow from another and are to be added to a batch that does not take them lose it, and are cancelled.
batches.reasons = {unknown = 'this store does not have', cancelled = 'is cancelled', ended = 'has ended',
  circle = 'it would wait for in a circle', crowd = 'has more than 10,000 jobs and batches that wait for it'}

-- Gives those that are refused, also those of which only the holder of their key would count.
function batches.drop(jobs, answers, fresh, own)
  local refused, new = {}, {}
  circles.found, circles.links = {}, {}
  local upstream = batches.special and circles.upstream_of(jobs, answers, standing_for(jobs, answers)) or {}
  for _, j in ipairs(fresh) do new[j.id] = true end
  for _, j in ipairs(jobs) do
    local why = j.batch and batches.against(j.batch, own)
    if j.batch and not why and upstream[j.id] then why = circles.judge(j.batch, upstream[j.id]) end
    if why then
      refused[j.id] = true
      if new[j.id] then
        j.waits_for, j.left, j.total = nil, {}, 0
        j.doomed = {j.id, reason = 'it was to be added to batch ' .. j.meta.b .. ', which ' .. batches.reasons[why]}
        batches.repack(j, nil)
      end
    end
  end
  return refused
end

-- Write jobs that were sorted out.
local function accept(fresh, stands_for)
  if #fresh == 0 then return end
  types.need_for(fresh)
  sort_waits(fresh, stands_for or {})
  local keyed = 0
  for _, j in ipairs(fresh) do if j.meta and j.meta.k then keyed = keyed + 1 end end
  if keyed > 0 then sweep(holds.swept * keyed) end
  local seq, most = call('INCRBY', P .. 'seq', #fresh) - #fresh, {}
  local buckets, pushes, order, queues, added, coming_holds, comers = {}, {}, {}, {}, {}, {}, {}
  for x, j in ipairs(fresh) do
    local l, id = j.lane, j.id
    local number, due, kind = number_of(l), now + j.when, FRESH
    if floor(j.flags / AT_TIME) % 2 == 1 then due = j.when end
    local scheduled = floor(j.flags / SCHEDULED) % 2 == 1
    if scheduled then due = max(due, now) end
    if j.left then
      hold_back(j, due)
      due, kind = FAR, TIMED
    elseif due > now or scheduled then kind = TIMED end
    local attempts = j.most > 0 and j.most or attempts_of(l.q, most)
    local k = bucket(id)
    local b = buckets[k]
    if not b then b = {} buckets[k] = b end
    b[#b + 1] = id
    local group = j.meta and j.meta.g
    if group then
      kind = GROUPED[kind]
      local member = pk('>I8', seq + x) .. id
      writes.later('ZADD', place(number, kind), num(due), member)
      writes.later('ZADD', group_place(number, kind, group), num(due), member)
      comers[#comers + 1] = {number, group, due}
      waits(number, kind, 1)
    elseif kind == FRESH and due == now then
      local g = pushes[number]
      if not g then g = {} pushes[number] = g order[#order + 1] = number end
      g[#g + 1] = pk('>I8I8', due, seq + x) .. id
    else
      if kind == FRESH then kind = PAST end
      writes.later('ZADD', place(number, kind), num(due), pk('>I8', seq + x) .. id)
      waits(number, kind, 1)
    end
    local flags = j.flags % AT_TIME
    if floor(j.flags / WITH_EXPIRY) % 2 == 1 then
      flags = flags + EXPIRES
      writes.later('ZADD', P .. 'expiries', num(now + j.meta.e), id)
    end
    b[#b + 1] = pk(HEAD, now, due, seq + x, j.timeout, attempts, number, j.metalen, byte(kind), flags) .. j.rest
    if j.meta then
      if j.meta.k then
        local behind = j.meta.d and id .. pk('>I8', j.meta.d > 0 and now + j.meta.d or 0)
        holds.later(coming_holds, l, j.meta.k, id, (j.meta.l or 0) > 0 and now + j.meta.l or 0, behind)
      end
      index(id, j.meta, 1)
    end
    if j.batch then
      any_held = true
      batches.count(j.batch, nil, READY)
    end
    queues[l.q], ahead[id] = true, nil
    added[l] = (added[l] or 0) + 1
  end
  for l, count in pairs(added) do tally(l.q, l.t, 'enqueued', count) end
  for _, number in ipairs(order) do
    local g, last = pushes[number], fresh_lane.last(number)
    local late = last and entry_due(last) > now
    if late then
      -- The clock was set back since the last entry came.
      for _, e in ipairs(g) do writes.later('ZADD', place(number, PAST), num(now), sub(e, 9)) end
      fresh.past[number] = true
    else
      fresh_lane.put(number, g)
    end
    waits(number, late and PAST or FRESH, #g)
  end
  for k, b in pairs(buckets) do
    many('HSET', P .. 'b:' .. k, b)
    call('ZADD', P .. 'buckets', 0, k)
  end
  for queue in pairs(queues) do call('SADD', P .. 'queues', queue) end
  holds.write(coming_holds)
  writes.together()
  groups.open(comers)
end

-- Jobs that an earlier one stands for, counted.
local function tally_duplicates(jobs, answers)
  for i, j in ipairs(jobs) do
    if sub(answers[i], 2) ~= j.id then tally(j.lane.q, j.lane.t, 'deduplicated') end
  end
end
