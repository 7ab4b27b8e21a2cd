-- KEYS[1]: prefix. ARGV: now, then the names of workers.
-- Returns: id and lease of each of their runs that is to end.
-- Says which runs were asked to stop.
-- uses: records
local out, wanted = {}, {}
for i = 2, #ARGV do wanted[ARGV[i]] = true end
for _, id in ipairs(call('SMEMBERS', P .. 'asked')) do
  local h, r = look(id)
  if h and r.state == RUNNING and wanted[call('HGET', P .. 'c:' .. num(r.claim), 'worker') or ''] then
    out[#out + 1] = {id, num(r.lease)}
  end
end
return out
