-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of every script that writes.
-- The store's clock: the latest time that a writer saw. One that sees an earlier time sets right what was due, and cuts leases.
local function rescore_groups(number, kind, members)
  for _, member in ipairs(members) do
    local h, _, v = look(sub(member, 9))
    if h then join_members(number, kind, group_of(v, h), now, member) end
  end
end

local function rescore(last)
  for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
    for _, field in ipairs(call('HKEYS', P .. 'n:' .. queue)) do
      local number, kind = match(field, '^%d|(%d+)|(%w)$')
      if UNGROUPED[kind] then reopen_all(tonumber(number)) end
      if kind ~= FRESH then
        local key = place(tonumber(number), kind)
        repeat
          local found = call('ZRANGEBYSCORE', key, '(' .. num(now), num(last), 'LIMIT', 0, 1000)
          local scored = {}
          for _, member in ipairs(found) do
            scored[#scored + 1] = num(now)
            scored[#scored + 1] = member
          end
          if #found > 0 then many('ZADD', key, scored) end
          if UNGROUPED[kind] then rescore_groups(tonumber(number), kind, found) end
        until #found == 0
      end
    end
  end
end

local function cut_leases()
  for _, claim in ipairs(call('ZRANGE', P .. 'leases', 0, -1)) do
    local ids, first = call('HGET', P .. 'c:' .. claim, 'ids') or '', nil
    for at = 1, #ids, 16 do
      local id = sub(ids, at, at + 15)
      local m = call('HGET', P .. 'm:' .. bucket(id), id)
      local r = m and record(m)
      if r and r.state == RUNNING and num(r.claim) == claim then
        if r.until_ - now > r.given then
          r.until_ = now + r.given
          put(id, r)
        end
        first = min(first or r.until_, r.until_)
      end
    end
    if first then call('ZADD', P .. 'leases', num(first), claim) end
  end
  writes.records()
end

-- From when to when, and the jobs that it concerns. Two steps back without a new job between them are one.
local function note_set_back(last)
  local seq, before = tonumber(call('GET', P .. 'seq') or 0), call('LINDEX', P .. 'backs', -1)
  if before then
    local from, to, concerned = un('>I8I8I8', before)
    if concerned == seq and now < from and from <= last then
      call('RPOP', P .. 'backs')
      last = max(to, last)
    end
  end
  call('RPUSH', P .. 'backs', pk('>I8I8I8', now, last, seq))
  call('LTRIM', P .. 'backs', -64, -1)
  backs = nil
end

local function note_time()
  local last = tonumber(call('GET', P .. 'clock') or 0)
  if now < last then
    rescore(last)
    note_set_back(last)
    cut_leases()
  end
  if now ~= last then call('SET', P .. 'clock', num(now)) end
end
