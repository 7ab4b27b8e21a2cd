-- KEYS[1]: prefix. ARGV: now.
-- Returns: now, and for each limit kind, name, declared and chosen ('' is none), since ('' is unknown), by, running, last slot, counts by
-- slot, groups that are kept back.
-- Says what is limited, and how much of it is in use.
-- uses: counts lanes records turns limits rooms
local out = {num(now)}

local function said(half) return half and half.text or '' end

for _, field in ipairs(call('HKEYS', P .. 'rules')) do
  local kind, name = match(field, '^(%w+)|(.*)$')
  local r = rule(kind, name)
  local slot, counts = '0', {}
  if r.force.starts and not r.force.per_group then
    local w = window(kind, name, r.force.width)
    slot = num(w.slot)
    for i = 0, SLOTS - 1 do counts[i + 1] = w[i] end
  end
  local shut = 0
  if r.force.per_group then
    for _, number in ipairs(lanes_of(name)) do shut = shut + call('HLEN', P .. 'kept:' .. num(number)) end
  end
  out[#out + 1] = {kind, name, said(r.declared), said(r.chosen), r.since or '', r.by or 'app', running_of(kind, name), slot, counts, shut}
end
-- Depth limits that the release before set.
for _, queue in ipairs(call('HKEYS', P .. 'limits')) do
  if call('HEXISTS', P .. 'rules', 'queue|' .. queue) == 0 then
    local text = '{"max_depth":' .. call('HGET', P .. 'limits', queue) .. '}'
    out[#out + 1] = {'queue', queue, '', text, '', 'app', running_of('queue', queue), '0', {}, 0}
  end
end
return out
