-- KEYS[1]: prefix. ARGV: now, id, up to which number to count.
-- Returns: nothing when the job does not wait, or has no group; else the limit per group ('' is none), runs of the group, starts that count,
-- when the rate opens ('' when it keeps none back), the job that goes first ('' is none), whether it runs, groups and jobs that are before
-- this one.
-- Says what keeps a waiting job of a group back.
-- uses: counts lanes fresh_lists records turns limits rooms group_order
local id, most = ARGV[2], tonumber(ARGV[3])
local h, r, v = look(id)
if not h or r.state ~= READY or not UNGROUPED[h.kind] or held_of(id) then return {} end
local l, group = lane(r.lane), group_of(v, h)
local member = pk('>I8', h.seq) .. id
local due = tonumber(call('ZSCORE', group_place(r.lane, r.kind, group), member))
local own = tonumber(call('ZSCORE', P .. 'turn:' .. num(r.lane), group) or math.huge)

-- The lanes with groups of the queue and priority.
local groups, seen, jobs = 0, {}, 0
for _, field in ipairs(call('HKEYS', P .. 'n:' .. l.q)) do
  local p, number, kind = match(field, '^(%d)|(%d+)|(%w)$')
  if p == l.p and UNGROUPED[kind] then
    if not seen[number] then
      seen[number] = true
      local before = own == math.huge and '+inf' or '(' .. num(own)
      for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'turn:' .. number, '-inf', before, 'LIMIT', 0, most)) do
        if name ~= group and not seen['|' .. name] then
          seen['|' .. name] = true
          groups = groups + 1
        end
      end
    end
    local key = group_place(tonumber(number), kind, group)
    jobs = jobs + call('ZCOUNT', key, '-inf', '(' .. num(due))
    for _, other in ipairs(call('ZRANGEBYSCORE', key, num(due), num(due), 'LIMIT', 0, most)) do
      if other < member then jobs = jobs + 1 end
    end
  end
end
groups, jobs = min(groups, most), min(jobs, most)
local f, limit, started, opens, first = group_rule(l.t), '', 0, '', nil
if not f then return {'', 0, 0, '', '', 0, groups, jobs} end
local name = l.t .. '|' .. group
if f.starts then
  local w = window('group', name, f.width)
  started, opens = w.sum, opens_at(w, f.starts, f.width)
end
if f.ordered then first = first_of_group(l.t, group) end
return {f.text, tonumber(call('HGET', P .. 'groupruns', name) or 0), started, opens and opens ~= '' and num(opens) or '', first and first.id or '',
  first and first.running and 1 or 0, groups, jobs}
