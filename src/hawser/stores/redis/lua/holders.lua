-- KEYS[1]: prefix. ARGV: now, then id(16) lease(8) of each run.
-- Returns: for each the worker that took it, or ''.
-- Says which worker holds a run, or settled it last.
-- uses: records
local out = {}
for i = 2, #ARGV do
  local h, r = look(sub(ARGV[i], 1, 16))
  local holds = h and r.lease > 0 and r.lease == un('>I8', ARGV[i], 17)
  if not holds then out[#out + 1] = ''
  elseif r.state == RUNNING then out[#out + 1] = call('HGET', P .. 'c:' .. num(r.claim), 'worker') or ''
  else out[#out + 1] = r.worker end
end
return out
