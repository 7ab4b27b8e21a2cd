-- KEYS[1]: prefix. ARGV: now, queue and task ('' is any).
-- Returns: queue, task, fingerprint, count, then the oldest job's id and finished, and the newest one's id, lane, last record, reason
-- and finished, of each group of a queue.
-- Counts dead jobs by their groups. Its cost grows with the number of groups, not of jobs.
-- uses: counts lanes records
local out = {}
for _, name in ipairs(call('SMEMBERS', P .. 'groups')) do
  local q, t, fingerprint = match(name, '^([^|]*)|([^|]*)|(.*)$')
  if (ARGV[2] == '' or q == ARGV[2]) and (ARGV[3] == '' or t == ARGV[3]) then
    local key = P .. 'g:' .. name
    local oldest, newest = call('ZRANGE', key, 0, 0)[1], call('ZREVRANGE', key, 0, 0)[1]
    local _, first = look(oldest)
    local h, last = look(newest)
    out[#out + 1] = {q, t, fingerprint, call('ZCARD', key), oldest, num(first.finished), newest, lane(h.lane).text,
      call('LINDEX', P .. 'h:' .. newest, -1) or '', call('HGET', P .. 'o:' .. newest, 'reason') or '', num(last.finished)}
  end
end
return out
