-- KEYS[1]: prefix. ARGV: now, how many minutes, how many minutes ago the last of them was.
-- Returns: now, then minute and all fields of each that has any.
-- Reads what happened in so many minutes.
-- uses:
local this, out = floor(now / 60000000) - tonumber(ARGV[3]), {num(now)}
for minute = this - tonumber(ARGV[2]) + 1, this do
  local counted = call('HGETALL', P .. 't:' .. num(minute))
  if #counted > 0 then out[#out + 1] = {num(minute), counted} end
end
return out
