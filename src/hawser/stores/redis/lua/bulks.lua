-- KEYS[1]: prefix. ARGV: now, how many, or an id.
-- Returns: now and the operations.
-- Reads one bulk operation, or the latest ones, newest first.
-- uses:
local most = tonumber(ARGV[2])
local out, ids = {num(now)}, most and call('ZREVRANGEBYLEX', P .. 'bulkids', '+', '-', 'LIMIT', 0, most) or {ARGV[2]}
for _, id in ipairs(ids) do
  local v = call('HGET', P .. 'bulks', id)
  if v then out[#out + 1] = v end
end
return out
