-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that look after runs.
-- Whether a time passed that matters should the clock be set back: an idle store is not written to.
local function something_became_due(last)
  if call('EXISTS', P .. 'leases') == 1 then return true end
  for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
    for _, field in ipairs(call('HKEYS', P .. 'n:' .. queue)) do
      local number, kind = match(field, '^%d|(%d+)|(%w)$')
      if kind ~= FRESH and call('ZCOUNT', place(tonumber(number), kind), '(' .. num(last), num(now)) > 0 then return true end
    end
  end
  return false
end
