-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that an operator's action runs.
-- One record of an action. Reason and about are '' where not given; ids are those of jobs, joined.
local function audit(by, action, target, count, reason, about, ids)
  local number = call('INCR', P .. 'auditnumber')
  call('XADD', P .. 'audit', num(number) .. '-0', 'r', cmsgpack.pack({now, by, action, target, count, reason, about}), 'ids', ids or '')
end
