-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that take or free deduplication keys.
-- A hold without a time (0) ends with its job. A window ends at its time, or with its job if that lives longer.
local holds = {swept = 4}

local function scope(queue, task) return P .. 'k:' .. queue .. '|' .. task end

-- Whether a job with this key waits or runs.
local function is_live(id, queue, task, key)
  local h, r, v = look(id)
  if not h or r.state > RUNNING or not h.keyed then return false end
  local l = lane(h.lane)
  return l.q == queue and l.t == task and meta_of(v, h).k == key
end

-- Whether a job held its key until its start, and has started, or is not there.
local function has_let_go(id)
  local h, r, v = look(id)
  return not h or h.keyed and r.attempt > 0 and meta_of(v, h).l == -2
end

-- What the hashes of keys have for the keys of these jobs, by the places of the jobs.
function holds.of(jobs)
  local by, found = {}, {}
  for i, j in ipairs(jobs) do
    local key = j.meta and j.meta.k
    if key then
      local name = scope(j.lane.q, j.lane.t)
      local s = by[name]
      if not s then s = {keys = {}, at = {}} by[name] = s end
      s.keys[#s.keys + 1], s.at[#s.at + 1] = key, i
    end
  end
  for name, s in pairs(by) do
    for i = 1, #s.keys, PIECE do
      local last = min(i + PIECE - 1, #s.keys)
      for n, v in ipairs(call('HMGET', name, unpack(s.keys, i, last))) do found[s.at[i + n - 1]] = v end
    end
  end
  return found
end

-- The job that holds a key; `v` is what the hash of keys has for it, if that was read.
local function holder(queue, task, key, v)
  if v == nil then v = call('HGET', scope(queue, task), key) end
  if not v then return nil end
  local until_, id = un('>I8', v), sub(v, 9, 24)
  if until_ == 0 then return not has_let_go(id) and id or nil end
  if until_ > now or is_live(id, queue, task, key) then return id end
  return nil
end

-- `behind` is what debounced jobs keep with their key.
local function hold(queue, task, key, id, until_, behind)
  if call('HSET', scope(queue, task), key, pk('>I8', until_) .. id .. (behind or '')) == 1 then add('kc', queue, 1) end
  if until_ > 0 then call('ZADD', P .. 'kw', num(until_), id .. queue .. '|' .. task .. '|' .. key) end
end

-- Holds of jobs that come together, by the hash of their keys.
function holds.later(coming, l, key, id, until_, behind)
  local name = scope(l.q, l.t)
  local h = coming[name]
  if not h then h = {queue = l.q} coming[name] = h end
  h[#h + 1] = key
  h[#h + 1] = pk('>I8', until_) .. id .. (behind or '')
  if until_ > 0 then writes.later('ZADD', P .. 'kw', num(until_), id .. l.q .. '|' .. l.t .. '|' .. key) end
end

function holds.write(coming)
  for name, h in pairs(coming) do
    for i = 1, #h, PIECE do add('kc', h.queue, call('HSET', name, unpack(h, i, min(i + PIECE - 1, #h)))) end
  end
end

local function unhold(queue, task, key)
  if call('HDEL', scope(queue, task), key) == 1 then add('kc', queue, -1) end
end

-- The job holds its key no longer, unless its window goes on.
local function end_key(queue, task, key, id)
  local v = call('HGET', scope(queue, task), key)
  if not v or sub(v, 9, 24) ~= id then return end
  local until_ = un('>I8', v)
  if until_ <= now then unhold(queue, task, key) end
end

-- Forget windows that have run out. The hold of a job that is still live ends with the job from now on.
local function sweep(limit)
  local over = call('ZRANGEBYSCORE', P .. 'kw', '-inf', num(now), 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #over, 2 do
    local id, queue, task, key = sub(over[i], 1, 16), match(sub(over[i], 17), '^([^|]*)|([^|]*)|(.*)$')
    local v = call('HGET', scope(queue, task), key)
    if v == pk('>I8', tonumber(over[i + 1])) .. id then
      if is_live(id, queue, task, key) then call('HSET', scope(queue, task), key, pk('>I8', 0) .. id)
      else unhold(queue, task, key) end
    end
    call('ZREM', P .. 'kw', over[i])
  end
end
