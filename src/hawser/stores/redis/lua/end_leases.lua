-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' is none), worker.
-- Returns: how many leases ended.
-- Ends the leases of a worker. When each was last lengthened stays known.
-- uses: counts lanes records turns clock audit
local ended = 0
note_time()
for _, claim in ipairs(call('ZRANGE', P .. 'leases', 0, -1)) do
  local about = call('HMGET', P .. 'c:' .. claim, 'worker', 'ids')
  local ids, cut = about[1] == ARGV[5] and about[2] or '', 0
  for at = 1, #ids, 16 do
    local id = sub(ids, at, at + 15)
    local m = call('HGET', P .. 'm:' .. bucket(id), id)
    local r = m and record(m)
    if r and r.state == RUNNING and num(r.claim) == claim and r.until_ > now then
      r.given = max(0, r.given - (r.until_ - now))
      r.until_ = now
      put(id, r)
      cut = cut + 1
    end
  end
  if cut > 0 then call('ZADD', P .. 'leases', num(now), claim) end
  ended = ended + cut
end
writes.records()
if ended > 0 then audit(ARGV[2], 'reclaim_worker', 'worker:' .. ARGV[5], ended, ARGV[3], ARGV[4]) end
return ended
