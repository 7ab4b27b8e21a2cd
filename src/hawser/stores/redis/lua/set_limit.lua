-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' is none), audit action ('' when code declares), then for each limit: kind, name,
-- text ('' is none), running, starts, width of a slot, max depth ('' is none), whether it is per group, whether groups are ordered.
-- Returns: 1 when something changed, else 0.
-- Sets or takes back what an operator chose, or what code declares, and counts the runs of limited tasks anew.
-- uses: counts lanes records turns recount audit
local by, reason, about, action = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local changed = 0

-- Starts count on as long as this stays the same.
local function width_of(r)
  local f = r.chosen or r.declared
  return f and fmt('%s|%s', tostring(f.width), tostring(f.per_group)) or false
end

-- Groups that a limit kept back may go on.
local function look_at_groups(task)
  for _, number in ipairs(lanes_of(task)) do reopen_all(number) end
end

-- What is known of the groups of a task counts no longer.
local function forget_groups(task, key, before)
  if call('EXISTS', P .. key) == 0 then return end
  local gone, start = {}, before .. task .. '|'
  for _, field in ipairs(call('HKEYS', P .. key)) do
    if sub(field, 1, #start) == start then gone[#gone + 1] = field end
  end
  if #gone > 0 then many('HDEL', P .. key, gone) end
end

local function set(kind, name, text, running, starts, width, depth, per_group, ordered)
  local field = kind .. '|' .. name
  local v = call('HGET', P .. 'rules', field)
  local r = v and cmsgpack.unpack(v) or {declared = false, chosen = false}
  local which = action == '' and 'declared' or 'chosen'
  local before, was = r[which], width_of(r)
  if text == '' and not before and action ~= 'set_limit' then return end
  if action == '' and before and before.text == text then return end
  r[which] = text ~= '' and {text = text, running = tonumber(running) or false, starts = tonumber(starts) or false,
    width = tonumber(width) or false, per_group = per_group == '1', ordered = ordered == '1'} or false
  if action ~= '' then r.since, r.by = num(now), by elseif not r.chosen then r.since, r.by = num(now), 'code' end
  changed = 1
  if r.chosen or r.declared then call('HSET', P .. 'rules', field, cmsgpack.pack(r)) else call('HDEL', P .. 'rules', field) end
  if width_of(r) ~= was then
    call('HDEL', P .. 'starts', field)
    forget_groups(name, 'groupstarts', 'group|')
  end
  local force = r.chosen or r.declared
  if not force or not force.ordered then forget_groups(name, 'groupheads', '') end
  if kind == 'task' then look_at_groups(name) end
  if kind == 'queue' then
    if depth == '' then call('HDEL', P .. 'limits', name) else call('HSET', P .. 'limits', name, depth) end
  end
  if action ~= '' then audit(by, action, kind .. ':' .. name, 0, reason, about) end
end

for i = 6, #ARGV, 9 do set(unpack(ARGV, i, i + 8)) end
if changed == 1 then
  recount()
  call('PUBLISH', P .. 'wake', '')
end
return changed
