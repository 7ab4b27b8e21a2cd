-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that keep bulk operations.
-- An operation is id, plan, state, owner, turn, cursor, done, skipped, error, started, seen, ended; false where missing.
local FIELD = {plan = 2, state = 3, owner = 4, turn = 5, cursor = 6, did = 7, skipped = 8, error = 9, started = 10, seen = 11, ended = 12}

local function operation(id)
  local v = call('HGET', P .. 'bulks', id)
  return v and cmsgpack.unpack(v)
end

local function keep(o)
  local v = cmsgpack.pack(o)
  call('HSET', P .. 'bulks', o[1], v)
  return v
end
