-- KEYS[1]: the prefix of all keys, with its hash tag. ARGV[1]: a test's time in microseconds, or '' for the server's.
-- Returns: nothing; it is put in front of every script.
-- The time, the words for states and lanes, and calls with more values than `unpack` takes.
local P, call = KEYS[1], redis.call
local sub, byte, char, fmt, match = string.sub, string.byte, string.char, string.format, string.match
local floor, min, max = math.floor, math.min, math.max
local pk, un = struct.pack, struct.unpack
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local READY, RUNNING, DONE, DEAD, CANCELLED = 0, 1, 2, 3, 4
local STATE = {[0] = 'ready', 'running', 'done', 'dead', 'cancelled'}
local FRESH, TIMED, RETRYING = '0', '1', '2'
-- A fresh job whose due time is before that of the list's last entry; it stands in a sorted set beside the list.
local PAST = 'p'
-- The kinds of jobs with a group, by those of jobs without, and back.
local GROUPED = {[FRESH] = 'g', [PAST] = 'g', [TIMED] = 'h', [RETRYING] = 'i'}
local UNGROUPED = {g = PAST, h = TIMED, i = RETRYING}
local GROUP_KINDS = {'g', 'h', 'i'}
local GRACE, OVERDUE, HISTORY = 5000000, 500000, 100
local PIECE = 2000

-- Lua prints large numbers as 1.7e+15.
local function num(n) return fmt('%.0f', n) end

local function many(command, key, values)
  for i = 1, #values, PIECE do call(command, key, unpack(values, i, min(i + PIECE - 1, #values))) end
end

-- Writes of the same command to the same key go together, by `flush`: a command for each would cost more than what it does. Nothing may read
-- such a key before. Records of jobs, by bucket, are known to `look` meanwhile. `flushes` is how often counts were written: what was read of
-- them before is old then.
local writes = {commands = {}, buckets = {}, put = {}, finished = {}, left_groups = {}, flushes = 0}

-- A bucket holds the jobs whose ids were made within the same 64 ms.
-- Neighbours mostly share theirs.
local bucket
do
  local last_front, last_end, found
  function bucket(id)
    local front, back = sub(id, 1, 5), byte(id, 6)
    back = back - back % 64
    if front ~= last_front or back ~= last_end then last_front, last_end, found = front, back, front .. char(back) end
    return found
  end
end

-- The values of these jobs in their buckets, in their order; false where missing. One list for each kind that is asked for.
local function fetch(ids, kind, another)
  local by, found, more, k, g = {}, {}, {}, nil, nil
  for i, id in ipairs(ids) do
    local here = bucket(id)
    if here ~= k then
      k, g = here, by[here]
      if not g then g = {ids = {}, at = {}, n = 0} by[k] = g end
    end
    local n = g.n + 1
    g.ids[n], g.at[n], g.n = id, i, n
  end
  for bucket_, b in pairs(by) do
    for i = 1, b.n, PIECE do
      local last, at = min(i + PIECE - 1, b.n), b.at
      local values = call('HMGET', P .. kind .. bucket_, unpack(b.ids, i, last))
      for j = i, last do found[at[j]] = values[j - i + 1] end
      if another then
        values = call('HMGET', P .. another .. bucket_, unpack(b.ids, i, last))
        for j = i, last do more[at[j]] = values[j - i + 1] end
      end
    end
  end
  return found, more
end
