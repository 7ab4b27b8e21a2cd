-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that say since when jobs wait.
-- The due time of the first job in a lane, nil when it has no job. Entries of jobs that have left are passed.
local function oldest_of(number, kind)
  if kind ~= FRESH then return tonumber(call('ZRANGE', place(number, kind), 0, 0, 'WITHSCORES')[2]) end
  local left = tonumber(call('HGET', P .. 'stale', num(number)) or 0)
  local entries = fresh_lane.first(number, min(left, 1000) + 1)
  local stale = left > 0 and fresh_stale(entries)
  for i, e in ipairs(entries) do
    if not (stale and stale[i]) then return min(now, entry_due(e)) end
  end
  return nil
end
