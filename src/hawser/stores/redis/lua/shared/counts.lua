-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that count.
-- Counts are summed here and written once, by `flush`, at the end of a script, with the writes and the records that were put off.
local counts = {}

function writes.later(command, key, a, b)
  local keys = writes.commands[command]
  if not keys then keys = {} writes.commands[command] = keys end
  local values = keys[key]
  if not values then values = {} keys[key] = values end
  values[#values + 1] = a
  if b then values[#values + 1] = b end
end

function writes.together()
  local commands = writes.commands
  writes.commands = {}
  for command, keys in pairs(commands) do
    for key, values in pairs(keys) do many(command, key, values) end
  end
end

function writes.records()
  for k, by in pairs(writes.buckets) do
    local values = {}
    for id, text in pairs(by) do
      values[#values + 1] = id
      values[#values + 1] = text
    end
    many('HSET', P .. 'm:' .. k, values)
  end
  writes.buckets, writes.put = {}, {}
end

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
  writes.records()
  writes.together()
  for name in pairs(writes.left_groups) do
    if call('EXISTS', P .. 'g:' .. name) == 0 then call('SREM', P .. 'groups', name) end
  end
  writes.left_groups = {}
  for key, c in pairs(counts) do
    for field, by in pairs(c) do
      -- A field at zero would make claims open empty lanes, and names cost memory for ever.
      if by ~= 0 and call('HINCRBY', P .. key, field, num(by)) == 0 then call('HDEL', P .. key, field) end
    end
    if sub(key, 1, 2) == 't:' then call('EXPIRE', P .. key, 90000, 'NX') end
  end
  counts, writes.flushes = {}, writes.flushes + 1
end
