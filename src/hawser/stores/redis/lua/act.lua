-- KEYS[1]: prefix. ARGV: now, action, by, reason and about ('' when not given), most ids in a record, for a requeue the spread
-- and the delay, then ids.
-- Returns: a word for each id.
-- Cancels, requeues or discards jobs.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake limits ending dependencies audit acting
local named = {}
for i = 9, #ARGV do named[i - 8] = ARGV[i] end
requeuing.spread, requeuing.delay = tonumber(ARGV[7]), tonumber(ARGV[8])
note_time()
local answers, changed = act_on(ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), named)
go_on()
flush()
if changed > 0 then call('PUBLISH', P .. 'wake', '') end
return answers
