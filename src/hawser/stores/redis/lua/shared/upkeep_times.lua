-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that say how long upkeep may rest.
-- Now, and microseconds until a schedule, an expiry and the upkeep of runs have something to do; -1 is never. While a job runs, only
-- the scheduler may rest: what a run leaves behind is not published.
local function upkeep_times()
  local last = tonumber(call('GET', P .. 'clock') or 0)
  local function first(key)
    local due = tonumber(call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')[2])
    return due and num(max(0, due - now)) or '-1'
  end
  local left_over = call('EXISTS', P .. 'stirred', P .. 'cancelling', P .. 'going') > 0
  local busy = now < last or left_over or something_became_due(last)
  return {num(now), first('scheduledue'), busy and '0' or first('expiries'), busy and '0' or first('deadlines')}
end
