-- KEYS[1]: prefix. ARGV: now, then names of hashes.
-- Returns: now, and all fields of each.
-- Reads small hashes together with the time.
-- uses:
local out = {num(now)}
for i = 2, #ARGV do out[i] = call('HGETALL', P .. ARGV[i]) end
return out
