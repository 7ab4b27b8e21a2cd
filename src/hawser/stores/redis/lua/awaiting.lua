-- KEYS[1]: prefix. ARGV: now.
-- Returns: a number.
-- Reads how many waits for events last.
-- uses: counts
return tonumber(call('GET', P .. 'awaiting') or 0)
