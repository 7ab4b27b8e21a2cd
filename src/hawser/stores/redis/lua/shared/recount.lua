-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that count the runs of limited tasks anew.
-- Runs may have begun before a task had a limit, or under scripts of the release before.
local function recount()
  if call('EXISTS', P .. 'rules') == 0 then
    call('UNLINK', P .. 'taskruns')
    return
  end
  local counted = {}
  for _, claim in ipairs(call('ZRANGE', P .. 'leases', 0, -1)) do
    local ids = call('HGET', P .. 'c:' .. claim, 'ids') or ''
    for at = 1, #ids, 16 do
      local id = sub(ids, at, at + 15)
      local m = call('HGET', P .. 'm:' .. bucket(id), id)
      local r = m and record(m)
      if r and r.state == RUNNING and num(r.claim) == claim then
        local task = lane(r.lane).t
        counted[task] = (counted[task] or 0) + 1
      end
    end
  end
  call('UNLINK', P .. 'taskruns')
  for task, n in pairs(counted) do
    if call('HEXISTS', P .. 'rules', 'task|' .. task) == 1 then call('HSET', P .. 'taskruns', task, n) end
  end
end
