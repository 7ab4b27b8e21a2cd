-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that write keys whose names come with the jobs.
-- A script that fails midway has written what came before, so it looks at the types of such keys first: a read fails on another type.
-- What only one job has (`o:`, `h:`, `steps:`, `out:`) carries its id in its name and is not looked at.
local types = {reads = {hash = 'HLEN', list = 'LLEN', set = 'SCARD', stream = 'XLEN', zset = 'ZCARD'}, seen = {}}

function types.need(kind, key)
  if types.seen[key] then return end
  types.seen[key] = true
  call(types.reads[kind], key)
end

-- The same for keys of single jobs or groups, most of which are not there: `look_at_own` looks at many at once, those of a sort together.
types.own = {}

function types.need_own(kind, sort, key)
  if types.seen[key] then return end
  types.seen[key] = true
  local own = types.own[sort]
  if not own then own = {kind = kind} types.own[sort] = own end
  own[#own + 1] = key
end

function types.look_at_own()
  for _, own in pairs(types.own) do
    for i = 1, #own, 100 do
      local last = min(i + 99, #own)
      if call('EXISTS', unpack(own, i, last)) > 0 then
        for n = i, last do call(types.reads[own.kind], own[n]) end
      end
    end
  end
  types.own = {}
end

-- The number that a lane has, or gets as the next new one.
function types.number_of(l)
  if l.n then return l.n end
  if not types.seen[l] then
    types.next = (types.next or tonumber(call('GET', P .. 'lanecount') or 0)) + 1
    types.seen[l] = types.next
  end
  return types.seen[l]
end

function types.need_sets(number, kinds)
  for _, kind in ipairs(kinds) do types.need('zset', place(number, kind)) end
end

function types.need_group(l, number, group)
  types.need('set', P .. 'grouplanes:' .. l.t)
  types.need('zset', P .. 'turn:' .. num(number))
  types.need('zset', P .. 'later:' .. num(number))
  types.need('hash', P .. 'kept:' .. num(number))
  types.need_sets(number, GROUP_KINDS)
  for _, kind in ipairs(GROUP_KINDS) do types.need_own('zset', kind, group_place(number, kind, group)) end
end

-- Put a job into the indexes of find (1), take it out (-1), or only look whether they are ours (0).
local function index(id, meta, by)
  local function mark(key)
    if by > 0 then writes.later('ZADD', key, 0, id) elseif by < 0 then call('ZREM', key, id) else types.need_own('zset', sub(key, 1, #P + 3), key) end
  end
  if meta.k then mark(P .. 'x:k:' .. meta.k) end
  if meta.p then mark(P .. 'x:p:' .. meta.p) end
  if meta.s then mark(P .. 'x:s:' .. meta.s) end
  if meta.g then mark(P .. 'x:g:' .. meta.g) end
  for _, argument in ipairs(meta.a or {}) do mark(P .. 'x:a:' .. argument) end
  if meta.b then mark(P .. 'x:b:' .. meta.b) end
  if meta.i then
    local ticks = P .. 'ticks:' .. meta.s
    if by > 0 then writes.later('HSET', ticks, meta.i, id) elseif by < 0 then call('HDEL', ticks, meta.i) else types.need('hash', ticks) end
  end
end

-- What jobs that arrive will be written to; their buckets and the holders of their keys are read before anything is written.
function types.need_for(jobs)
  if types.looked then return end
  local last, number
  for _, j in ipairs(jobs) do
    local l = j.lane
    if l ~= last then
      last, number = l, types.number_of(l)
      types.need('hash', P .. 'n:' .. l.q)
      types.need(fresh_lane.type, place(number, FRESH))
      if #set_back_times() > 0 then types.need_sets(number, {PAST}) end
    end
    if j.when > 0 or j.flags > 3 then types.need_sets(number, {PAST, TIMED}) end
    for _, id in ipairs(j.waits_for or {}) do types.need_own('set', 'w', P .. 'w:' .. id) end
    if j.meta then
      if j.meta.g then types.need_group(l, number, j.meta.g) end
      index(j.id, j.meta, 0)
    end
  end
  types.look_at_own()
end

-- What is read before it is written when calls are judged together, and must be looked at first when each is judged after another was written.
function types.need_apart(jobs)
  for _, j in ipairs(jobs) do
    types.need('hash', P .. 'b:' .. bucket(j.id))
    if j.meta and j.meta.k then types.need('hash', scope(j.lane.q, j.lane.t)) end
  end
end

-- What jobs of a lane are written to when they end, or when they wait again.
function types.need_end(number, plain)
  local l = lane(number)
  types.need('list', P .. 'f:' .. l.t .. '|done')
  if plain then return end
  types.need('list', P .. 'f:' .. l.t .. '|dead')
  types.need('list', P .. 'f:' .. l.t .. '|cancelled')
  types.need('hash', P .. 'n:' .. l.q)
  types.need_sets(number, {TIMED, RETRYING})
end
