-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that count.
-- Counts are summed here and written once, by `flush`, at the end of a script.
local counts = {}

local function add(key, field, by)
  local c = counts[key]
  if not c then c = {} counts[key] = c end
  c[field] = (c[field] or 0) + by
end

local MINUTE = 't:' .. num(floor(now / 60000000))
-- A key of another type fails here, before anything is written.
call('HLEN', P .. MINUTE)

-- What happened in this minute to jobs of a queue and task.
local function tally(queue, task, event, by) add(MINUTE, queue .. '|' .. task .. '|' .. event, by or 1) end

local function flush()
  for key, c in pairs(counts) do
    for field, by in pairs(c) do
      -- A field at zero would make claims open empty lanes, and names cost memory for ever.
      if by ~= 0 and call('HINCRBY', P .. key, field, num(by)) == 0 then call('HDEL', P .. key, field) end
    end
    if sub(key, 1, 2) == 't:' then call('EXPIRE', P .. key, 90000, 'NX') end
  end
  counts = {}
end
