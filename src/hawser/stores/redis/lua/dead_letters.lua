-- KEYS[1]: prefix. ARGV: now, queue and task ('' is any), id to go on behind ('' at first), jobs to look at.
-- Returns: how many were looked at, the id to go on behind ('' at the end), and id, lane, last record, reason, finished of each.
-- Reads dead jobs in brief, newest first.
-- uses: counts lanes records
local queue, task, after, limit = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local ids = call('ZREVRANGEBYLEX', P .. 'x:dead', after == '' and '+' or '(' .. after, '-', 'LIMIT', 0, limit + 1)
local out = {}
for i = 1, min(#ids, limit) do
  local id = ids[i]
  local h, r = look(id)
  local l = lane(h.lane)
  if (queue == '' or l.q == queue) and (task == '' or l.t == task) then
    out[#out + 1] = {id, l.text, call('LINDEX', P .. 'h:' .. id, -1) or '', call('HGET', P .. 'o:' .. id, 'reason') or '', num(r.finished)}
  end
end
return {min(#ids, limit), #ids > limit and ids[limit] or '', out}
