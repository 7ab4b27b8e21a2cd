-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that ask whether something is paused.
-- A pause is since, until (0: until resumed), reason, by.
local any_pause = call('EXISTS', P .. 'pauses') == 1

local function paused(kind, name)
  if not any_pause then return false end
  local v = call('HGET', P .. 'pauses', kind .. '|' .. name)
  if not v then return false end
  local until_ = cmsgpack.unpack(v)[2]
  return until_ == 0 or until_ > now
end
