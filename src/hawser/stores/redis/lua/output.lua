-- KEYS[1]: prefix. ARGV: now, id, behind which number, how many at most.
-- Returns: the chunks of a job's output behind that number (msgpack), as write_output.lua keeps them.
-- Reads what runs of a job have written.
-- uses: counts
local after = tonumber(ARGV[3])
return call('LRANGE', P .. 'out:' .. ARGV[2], after, after + tonumber(ARGV[4]) - 1)
