-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' is none), most ids in a record, queue and priority ('' stays), 'at', 'in' or '' and
-- the time, then ids.
-- Returns: a word for each id.
-- Gives waiting jobs another queue, priority or due time.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake ending audit acting changing
local named = {}
changing = {queue = ARGV[6], priority = ARGV[7], how = ARGV[8], time = tonumber(ARGV[9])}
for i = 10, #ARGV do named[i - 9] = ARGV[i] end

note_time()
local answers, changed = act_on('change', ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), named)
flush()
if changed > 0 then call('PUBLISH', P .. 'wake', '') end
return answers
