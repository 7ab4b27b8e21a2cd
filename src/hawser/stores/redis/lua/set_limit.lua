-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' is none), audit action ('' when code declares), then for each limit: kind, name,
-- text ('' is none), running, starts, width of a slot, max depth ('' is none).
-- Returns: 1 when something changed, else 0.
-- Sets or takes back what an operator chose, or what code declares, and counts the runs of limited tasks anew.
-- uses: counts lanes records recount audit
local by, reason, about, action = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local changed = 0

local function width_of(r)
  local f = r.chosen or r.declared
  return f and f.width or false
end

local function set(kind, name, text, running, starts, width, depth)
  local field = kind .. '|' .. name
  local v = call('HGET', P .. 'rules', field)
  local r = v and cmsgpack.unpack(v) or {declared = false, chosen = false}
  local which = action == '' and 'declared' or 'chosen'
  local before, was = r[which], width_of(r)
  if text == '' and not before and action ~= 'set_limit' then return end
  if action == '' and before and before.text == text then return end
  r[which] = text ~= '' and {text = text, running = tonumber(running) or false, starts = tonumber(starts) or false,
    width = tonumber(width) or false} or false
  if action ~= '' then r.since, r.by = num(now), by elseif not r.chosen then r.since, r.by = num(now), 'code' end
  changed = 1
  if r.chosen or r.declared then call('HSET', P .. 'rules', field, cmsgpack.pack(r)) else call('HDEL', P .. 'rules', field) end
  if width_of(r) ~= was then call('HDEL', P .. 'starts', field) end
  if kind == 'queue' then
    if depth == '' then call('HDEL', P .. 'limits', name) else call('HSET', P .. 'limits', name, depth) end
  end
  if action ~= '' then audit(by, action, kind .. ':' .. name, 0, reason, about) end
end

for i = 6, #ARGV, 7 do set(unpack(ARGV, i, i + 6)) end
if changed == 1 then
  recount()
  call('PUBLISH', P .. 'wake', '')
end
return changed
