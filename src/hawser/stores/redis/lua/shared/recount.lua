-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that count the runs of limited tasks anew.
-- Runs may have begun before a task had a limit, or under scripts of the release before.
local function recount()
  if call('EXISTS', P .. 'rules') == 0 then
    call('UNLINK', P .. 'taskruns', P .. 'groupruns')
    return
  end
  local counted, per_group, in_groups = {}, {}, {}
  local function counts_groups(task)
    if per_group[task] == nil then
      local v = call('HGET', P .. 'rules', 'task|' .. task)
      local r = v and cmsgpack.unpack(v)
      local force = r and (r.chosen or r.declared)
      per_group[task] = force and force.per_group or false
    end
    return per_group[task]
  end
  for _, claim in ipairs(call('ZRANGE', P .. 'leases', 0, -1)) do
    local ids = call('HGET', P .. 'c:' .. claim, 'ids') or ''
    for at = 1, #ids, 16 do
      local id = sub(ids, at, at + 15)
      local m = call('HGET', P .. 'm:' .. bucket(id), id)
      local r = m and record(m)
      if r and r.state == RUNNING and num(r.claim) == claim then
        local task = lane(r.lane).t
        counted[task] = (counted[task] or 0) + 1
        local v = counts_groups(task) and call('HGET', P .. 'b:' .. bucket(id), id)
        local h = v and head(v)
        if h and UNGROUPED[h.kind] then
          local name = task .. '|' .. meta_of(v, h).g
          in_groups[name] = (in_groups[name] or 0) + 1
        end
      end
    end
  end
  call('UNLINK', P .. 'taskruns', P .. 'groupruns')
  for name, n in pairs(in_groups) do call('HSET', P .. 'groupruns', name, n) end
  for task, n in pairs(counted) do
    if call('HEXISTS', P .. 'rules', 'task|' .. task) == 1 then call('HSET', P .. 'taskruns', task, n) end
  end
end
