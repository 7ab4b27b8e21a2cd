-- KEYS[1]: prefix. ARGV: now, groups to look at.
-- Returns: how many groups were forgotten.
-- Forgets what limits know of groups of which nothing counts any longer, and lanes in which no group waits. A piece of it at each call.
-- uses: counts lanes records turns limits rooms
local limit, gone = ARGV[2], 0

local function look_at_known(key, live)
  local cursor, found = unpack(call('HSCAN', P .. key, call('HGET', P .. 'looked', key) or '0', 'COUNT', limit))
  for i = 1, #found, 2 do
    if not live(found[i], found[i + 1]) then gone = gone + call('HDEL', P .. key, found[i]) end
  end
  if cursor == '0' then call('HDEL', P .. 'looked', key) else call('HSET', P .. 'looked', key, cursor) end
end

look_at_known('groupheads', function(_, id)
  local h, r = look(id)
  return h and r.state <= RUNNING
end)
look_at_known('groupstarts', function(field)
  local task, group = match(field, '^group|([^|]*)|(.*)$')
  local f = group_rule(task)
  return f and f.starts and window('group', task .. '|' .. group, f.width).sum > 0
end)

local known = call('HGETALL', P .. 'lanes')
for i = 1, #known, 2 do
  local l, number, waiting = split(known[i]), known[i + 1], false
  for _, kind in ipairs(GROUP_KINDS) do
    waiting = waiting or call('HEXISTS', P .. 'n:' .. l.q, l.p .. '|' .. number .. '|' .. kind) == 1
  end
  if not waiting then call('SREM', P .. 'grouplanes:' .. l.t, number) end
end
return gone
