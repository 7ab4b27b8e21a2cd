-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that obey the order of groups.
-- Says which job of an ordered group goes before all others.
-- `groupheads` has for each such group the job that started last. It keeps the group until it comes to its end.
local function kept_head(task, group)
  local id = call('HGET', P .. 'groupheads', task .. '|' .. group)
  local h, r
  if id then h, r = look(id) end
  if not h or (r.state ~= READY and r.state ~= RUNNING) then return nil end
  local member = pk('>I8', h.seq) .. id
  local due = r.state == READY and tonumber(call('ZSCORE', group_place(r.lane, r.kind, group), member)) or 0
  return {id = id, seq = h.seq, lane = r.lane, kind = r.kind, due = due, member = member, running = r.state == RUNNING, started = true}
end

-- The job that has started and not ended, else the one that is due for longest, in any queue and priority.
local function first_of_group(task, group)
  local first = kept_head(task, group)
  if first then return first end
  for _, number in ipairs(lanes_of(task)) do
    for _, kind in ipairs(GROUP_KINDS) do
      local found = call('ZRANGE', group_place(tonumber(number), kind, group), 0, 0, 'WITHSCORES')
      local due, seq = tonumber(found[2]), found[1] and un('>I8', found[1])
      if due and (not first or due < first.due or (due == first.due and seq < first.seq)) then
        first = {id = sub(found[1], 9), seq = seq, lane = tonumber(number), kind = kind, due = due, member = found[1]}
      end
    end
  end
  return first
end
