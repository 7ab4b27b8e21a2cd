-- KEYS[1]: prefix. ARGV: now, name of an event, or '' for all.
-- Returns: whether some are still to be woken.
-- Goes on with waking the jobs that wait for an event that has come; for all, also those whose time is over.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies waiting
note_time()
local woken, more = true, nil
if ARGV[2] == '' then
  woken, more = wake_rest()
  more = more and 1 or 0
else
  wake_for(ARGV[2])
  more = call('EXISTS', P .. 'await:' .. ARGV[2])
end
flush()
if woken then call('PUBLISH', P .. 'wake', '') end
return more
