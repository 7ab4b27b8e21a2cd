-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that put, take or drop fresh jobs.
-- Fresh lanes as lists. An entry is due(8) seq(8) id(16), appended in order of due time.
local function fresh_last(number) return call('LINDEX', place(number, FRESH), -1) end

local function fresh_first(number, count) return call('LRANGE', place(number, FRESH), 0, count - 1) end

local function fresh_put(number, entries) many('RPUSH', place(number, FRESH), entries) end

-- Entries of the list, from the one at the offset on.
local function fresh_read(number, offset, count) return call('LRANGE', place(number, FRESH), offset, offset + count - 1) end

-- Take the first `count` entries away and put those in `back`, which stood among them, in front again.
local function fresh_take(number, count, back)
  local key = place(number, FRESH)
  call('LPOP', key, count)
  for i = #back, 1, -1 do call('LPUSH', key, back[i]) end
end

local function fresh_clear(number) call('UNLINK', place(number, FRESH)) end

-- For each entry, whether its job waits here no longer. The entry of a cancelled job stays until it comes to the front. By then the job
-- may have been removed, and its id may have been given to a new job, which has an entry of its own.
local function fresh_stale(entries)
  local ids, stale = {}, {}
  for i, e in ipairs(entries) do ids[i] = sub(e, 17) end
  local b, m = fetch('b:', ids), fetch('m:', ids)
  for i, e in ipairs(entries) do
    local v = b[ids[i]]
    stale[i] = not v or m[ids[i]] or sub(v, 17, 24) ~= sub(e, 9, 16)
  end
  return stale
end
