-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that keep bulk operations.
-- An operation is id, plan, state, owner, turn, cursor, done, skipped, error, started, seen, ended; false where missing.
local PLAN, OPERATION_STATE, OWNER, TURN, CURSOR, DID, SKIPPED, ERROR, STARTED, SEEN, ENDED = 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12

local function operation(id)
  local v = call('HGET', P .. 'bulks', id)
  return v and cmsgpack.unpack(v)
end

local function keep(o)
  local v = cmsgpack.pack(o)
  call('HSET', P .. 'bulks', o[1], v)
  return v
end
