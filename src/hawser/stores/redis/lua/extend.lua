-- KEYS[1]: prefix. ARGV: now, lease in microseconds, then id(16) lease(8) and the progress ('' when not given) of each.
-- Returns: a letter for each: H held, C held and asked to stop, L lost.
-- Lengthens leases. The index of claims is corrected when an entry comes to its front, so nothing moves here.
-- uses: counts lanes records turns clock
local lease_for, out, ids = tonumber(ARGV[2]), {}, {}
for i = 3, #ARGV, 2 do ids[#ids + 1] = sub(ARGV[i], 1, 16) end
look_ahead(ids)
for i = 3, #ARGV, 2 do
  local id, lease = sub(ARGV[i], 1, 16), un('>I8', ARGV[i], 17)
  local h, r = look(id)
  local until_ = h and min(now + lease_for, r.started + h.timeout + GRACE)
  if not h or r.state ~= RUNNING or r.lease ~= lease or max(until_, r.until_) <= now then
    local l = r and lane(r.lane) or {q = '', t = ''}
    tally(l.q, l.t, 'stale_extension')
    out[#out + 1] = 'L'
  else
    local longer = until_ > r.until_
    if longer then r.until_, r.given = until_, until_ - now end
    if ARGV[i + 1] ~= '' then set_extra(id, r, 'progress', ARGV[i + 1]) end
    if longer or ARGV[i + 1] ~= '' then put(id, r) end
    out[#out + 1] = r.asked == 1 and 'C' or 'H'
  end
end
flush()
return table.concat(out)
