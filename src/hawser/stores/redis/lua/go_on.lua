-- KEYS[1]: prefix. ARGV: now.
-- Returns: whether some are still to be told.
-- Goes on with telling those who wait for jobs that ended.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies
note_time()
local some, turns = false, 0
repeat
  local told = batches.go_on_with_rest()
  some, turns = some or told, turns + 1
until not told or turns == 100
flush()
if some then call('PUBLISH', P .. 'wake', '') end
return any_held and call('EXISTS', P .. 'going') or 0
