-- KEYS[1]: prefix. ARGV: now, name of an event.
-- Returns: whether some are still to be woken.
-- Goes on with waking the jobs that wait for an event that has come.
-- uses: counts lanes fresh_lists records turns clock keys batches intake limits ending dependencies waiting
note_time()
wake_for(ARGV[2])
flush()
call('PUBLISH', P .. 'wake', '')
return call('EXISTS', P .. 'await:' .. ARGV[2])
