-- KEYS[1]: prefix. ARGV: now, id, turn, behind, cursor, skipped, ends and error ('' when not given), action, by, reason, about, most ids in a
-- record, for a requeue the spread and the delay, for a change as in change.lua, then ids.
-- Returns: now and the operation, or nothing when the step may not be written.
-- Acts on the jobs of a step, counts them and moves the cursor.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake limits ending dependencies audit acting changing bulks
local o, named = operation(ARGV[2]), {}
if not o or o[FIELD.state] ~= 'running' or o[FIELD.turn] ~= tonumber(ARGV[3]) or (o[FIELD.cursor] or '') ~= ARGV[4] then return {} end
for i = 20, #ARGV do named[i - 19] = ARGV[i] end
changing = {queue = ARGV[16], priority = ARGV[17], how = ARGV[18], time = tonumber(ARGV[19])}
requeuing.spread, requeuing.delay = tonumber(ARGV[14]), tonumber(ARGV[15])
note_time()
local _, changed = act_on(ARGV[9], ARGV[10], ARGV[11], ARGV[12], tonumber(ARGV[13]), named)
o[FIELD.cursor], o[FIELD.did], o[FIELD.skipped] = ARGV[5] ~= '' and ARGV[5], o[FIELD.did] + changed, o[FIELD.skipped] + tonumber(ARGV[6]) + #named - changed
o[FIELD.error], o[FIELD.seen] = ARGV[8] ~= '' and ARGV[8], now
if ARGV[7] ~= '' then o[FIELD.state], o[FIELD.ended] = ARGV[7], now end
local v = keep(o)
go_on()
flush()
if changed > 0 then call('PUBLISH', P .. 'wake', '') end
return {num(now), v}
