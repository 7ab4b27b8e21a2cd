-- KEYS[1]: prefix. ARGV: now, then queue, task, event and count of each.
-- Returns: nothing.
-- Adds what a worker has measured to this minute.
-- uses: counts
for i = 2, #ARGV, 4 do tally(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])) end
flush()
