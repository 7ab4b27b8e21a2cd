-- KEYS[1]: prefix. ARGV: now, id, turn, behind, cursor, skipped, ends and error ('' when not given), action, by, reason, about, most ids in a
-- record, then ids.
-- Returns: now and the operation, or nothing when the step may not be written.
-- Acts on the jobs of a step, counts them and moves the cursor.
-- uses: counts lanes fresh_lists records turns due_times clock keys intake limits ending dependencies audit acting bulks
local o, named = operation(ARGV[2]), {}
if not o or o[OPERATION_STATE] ~= 'running' or o[TURN] ~= tonumber(ARGV[3]) or (o[CURSOR] or '') ~= ARGV[4] then return {} end
for i = 14, #ARGV do named[i - 13] = ARGV[i] end
note_time()
local _, changed = act_on(ARGV[9], ARGV[10], ARGV[11], ARGV[12], tonumber(ARGV[13]), named)
o[CURSOR], o[DID], o[SKIPPED] = ARGV[5] ~= '' and ARGV[5], o[DID] + changed, o[SKIPPED] + tonumber(ARGV[6]) + #named - changed
o[ERROR], o[SEEN] = ARGV[8] ~= '' and ARGV[8], now
if ARGV[7] ~= '' then o[OPERATION_STATE], o[ENDED] = ARGV[7], now end
local v = keep(o)
go_on()
flush()
if changed > 0 then call('PUBLISH', P .. 'wake', '') end
return {num(now), v}
