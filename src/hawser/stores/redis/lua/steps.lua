-- KEYS[1]: prefix. ARGV: now, id.
-- Returns: the time; and the steps of a job, in any order, as in record_steps.lua.
-- Reads what runs of a job have achieved.
-- uses: counts
return {num(now), call('HVALS', P .. 'steps:' .. ARGV[2])}
