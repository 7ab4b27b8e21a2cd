-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that know requests.
-- A request is until(8) digest(32) and the ids of its jobs. It is known until its time is over and none of its jobs is kept.
local function any_kept(ids)
  for i = 1, #ids, 16 do
    local id = sub(ids, i, i + 15)
    if call('HEXISTS', P .. 'b:' .. bucket(id), id) == 1 then return true end
  end
  return false
end

local function request_named(name)
  local v = call('HGET', P .. 'requests', name)
  if not v or (un('>I8', v) <= now and not any_kept(sub(v, 41))) then return nil end
  return v
end
