-- KEYS[1]: prefix. ARGV: now.
-- Returns: now, and microseconds until a schedule, an expiry and the upkeep of runs have something to do; -1 is never.
-- Says in one look how long upkeep may rest.
-- uses: counts lanes became_due upkeep_times
return upkeep_times()
