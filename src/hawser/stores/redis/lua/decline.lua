-- KEYS[1]: prefix. ARGV: now, then id, what is known ('' is nothing) and what shall be, of each job: lease(8) since(8; 0 is now) marks.
-- Returns: now, and for each {0} when it is not live, {1, value} when it was written, {2, value} when something else is known.
-- Notes that a worker cannot run these jobs, unless another process has noted something meanwhile.
-- uses: records
local out = {num(now)}
for i = 2, #ARGV, 3 do
  local id, known, new = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local h, r = look(id)
  local stands = call('HGET', P .. 'declined', id) or ''
  if not h or r.state > RUNNING then out[#out + 1] = {0, ''}
  elseif stands ~= known then out[#out + 1] = {2, stands}
  else
    if un('>I8', new, 9) == 0 then new = sub(new, 1, 8) .. pk('>I8', now) .. sub(new, 17) end
    call('HSET', P .. 'declined', id, new)
    out[#out + 1] = {1, new}
  end
end
return out
