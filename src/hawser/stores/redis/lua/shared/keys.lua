-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that take or free deduplication keys.
-- A hold without a time (0) ends with its job. A window ends at its time, or with its job if that lives longer.
local SWEEP = 4

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

local function holder(queue, task, key)
  local v = call('HGET', scope(queue, task), key)
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
