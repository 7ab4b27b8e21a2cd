-- KEYS[1]: prefix. ARGV: now, name, by, reason and about ('' when not given).
-- Returns: 1 when it was there, else 0.
-- Removes a schedule; its jobs stay.
-- uses: audit
if call('HDEL', P .. 'schedules', ARGV[2]) == 0 then return 0 end
call('HDEL', P .. 'revisions', ARGV[2])
call('ZREM', P .. 'schedulenames', ARGV[2])
call('ZREM', P .. 'scheduledue', ARGV[2])
audit(ARGV[3], 'delete_schedule', 'schedule:' .. ARGV[2], 0, ARGV[4], ARGV[5])
return 1
