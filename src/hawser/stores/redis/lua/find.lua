-- KEYS[1]: prefix. ARGV: now, filter (msgpack), id to go on behind ('' at first), jobs wanted, jobs to look at.
-- Returns: how many were looked at, the id to go on behind ('' at the end), and the jobs as in views.lua.
-- Walks jobs from the newest, by the narrowest index that the filter has, and looks at a bounded number.
-- uses: counts lanes records due_times views
local filter, after, wanted, budget = cmsgpack.unpack(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local function has(texts, wanted)
  for _, text in ipairs(texts or {}) do
    if text == wanted then return true end
  end
  return false
end

local function has_texts(v, h)
  if not (filter.tag or filter.argument) then return true end
  if h.meta == 0 then return false end
  local meta = meta_of(v, h)
  return (not filter.tag or has(meta.t, filter.tag)) and (not filter.argument or has(meta.a, filter.argument))
end

local function is_waiting(id, h, r)
  if r.state ~= READY then return false end
  if filter.waiting == 'held' then return held_of(id) and true or false end
  if held_of(id) then return false end
  if filter.waiting == 'retrying' then return r.attempt > 0 end
  return r.attempt == 0 and due_of(id, h, r) > now
end

local function by_meta(v, h)
  if not (filter.key or filter.parent or filter.schedule or filter.member or filter.batch) then return true end
  if h.meta == 0 then return false end
  local meta = meta_of(v, h)
  return (not filter.key or meta.k == filter.key) and (not filter.parent or meta.p == filter.parent)
    and (not filter.schedule or meta.s == filter.schedule) and (not filter.member or meta.g == filter.member)
    and (not filter.batch or meta.b == filter.batch)
end

local function matches(id, v, m)
  local h = head(v)
  local r, l = m and record(m) or unclaimed(h), lane(h.lane)
  return (not filter.state or r.state == filter.state) and (not filter.queue or l.q == filter.queue)
    and (not filter.task or l.t == filter.task) and (not filter.since or h.enqueued >= filter.since)
    and (not filter['until'] or h.enqueued < filter['until']) and (not filter.waiting or is_waiting(id, h, r))
    and by_meta(v, h) and has_texts(v, h)
    and (not filter.fingerprint or (r.state == DEAD and call('HGET', P .. 'o:' .. id, 'fingerprint') == filter.fingerprint))
end

local function newest_first(a, b) return a > b end

-- The ids below the cursor in sorted sets, newest first.
local function from_sets(keys)
  local ids = {}
  for _, key in ipairs(keys) do
    local from = after == '' and '+' or '(' .. after
    for _, id in ipairs(call('ZREVRANGEBYLEX', key, from, '-', 'LIMIT', 0, budget + 1)) do ids[#ids + 1] = id end
  end
  if #keys > 1 then table.sort(ids, newest_first) end
  return ids
end

local function from_leases()
  local ids = {}
  for _, claim in ipairs(call('ZRANGE', P .. 'leases', 0, -1)) do
    local joined = call('HGET', P .. 'c:' .. claim, 'ids') or ''
    for at = 1, #joined, 16 do
      local id = sub(joined, at, at + 15)
      if after == '' or id < after then ids[#ids + 1] = id end
    end
  end
  table.sort(ids, newest_first)
  -- A job that was lost and claimed again stands in two claims.
  local once = {}
  for i, id in ipairs(ids) do if id ~= ids[i - 1] then once[#once + 1] = id end end
  return once
end

local function from_buckets()
  local ids, from = {}, after == '' and '+' or '[' .. bucket(after)
  for _, k in ipairs(call('ZREVRANGEBYLEX', P .. 'buckets', from, '-', 'LIMIT', 0, budget + 2)) do
    local some = {}
    for _, id in ipairs(call('HKEYS', P .. 'b:' .. k)) do
      if after == '' or id < after then some[#some + 1] = id end
    end
    table.sort(some, newest_first)
    for _, id in ipairs(some) do ids[#ids + 1] = id end
    if #ids > budget then break end
  end
  return ids
end

local function group_sets()
  local keys, ending = {}, '|' .. filter.task .. '|' .. filter.fingerprint
  for _, name in ipairs(call('SMEMBERS', P .. 'groups')) do
    if sub(name, -#ending) == ending then keys[#keys + 1] = P .. 'g:' .. name end
  end
  return keys
end

local function candidates()
  if filter.fingerprint then return from_sets(group_sets()) end
  if filter.key then return from_sets({P .. 'x:k:' .. filter.key}) end
  if filter.parent then return from_sets({P .. 'x:p:' .. filter.parent}) end
  if filter.schedule then return from_sets({P .. 'x:s:' .. filter.schedule}) end
  if filter.batch then return from_sets({P .. 'x:b:' .. filter.batch}) end
  if filter.member then return from_sets({P .. 'x:g:' .. filter.member}) end
  if filter.argument then return from_sets({P .. 'x:a:' .. filter.argument}) end
  if filter.state == DEAD or filter.state == CANCELLED then return from_sets({P .. 'x:' .. STATE[filter.state]}) end
  if filter.state == RUNNING then return from_leases() end
  return from_buckets()
end

local ids, some, jobs, looked, next_ = candidates(), {}, {}, 0, ''
for i = 1, min(#ids, budget) do some[i] = ids[i] end
local b, m = fetch(some, 'b:', 'm:')
for i, id in ipairs(some) do
  if b[i] and matches(id, b[i], m[i]) then
    if #jobs == wanted then
      next_ = ids[i - 1]
      break
    end
    jobs[#jobs + 1] = view(id, b[i], m[i])
  end
  looked = i
  if i == budget and #ids > budget then next_ = id end
end
return {looked, next_, jobs}
