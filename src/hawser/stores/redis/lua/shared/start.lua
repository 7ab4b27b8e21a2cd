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
local GRACE, OVERDUE, AGED, HISTORY = 5000000, 500000, 600000000, 100
local PIECE = 2000

-- Lua prints large numbers as 1.7e+15.
local function num(n) return fmt('%.0f', n) end

local function many(command, key, values)
  for i = 1, #values, PIECE do call(command, key, unpack(values, i, min(i + PIECE - 1, #values))) end
end

-- A bucket holds the jobs whose ids were made within the same 64 ms.
local function bucket(id)
  local b = byte(id, 6)
  return sub(id, 1, 5) .. char(b - b % 64)
end

-- The values of these jobs in their buckets, by id; false where missing.
local function fetch(kind, ids)
  local by, found = {}, {}
  for _, id in ipairs(ids) do
    local k = bucket(id)
    local g = by[k]
    if not g then g = {} by[k] = g end
    g[#g + 1] = id
  end
  for k, g in pairs(by) do
    for i = 1, #g, PIECE do
      local last = min(i + PIECE - 1, #g)
      local values = call('HMGET', P .. kind .. k, unpack(g, i, last))
      for j = i, last do found[g[j]] = values[j - i + 1] end
    end
  end
  return found
end
