-- KEYS[1]: prefix. ARGV: now, id(16) lease(8), the reason.
-- Returns: 1 when the job was ended, else 0.
-- Ends a job that waits again although its lost run did its work after all.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake limits ending dependencies audit acting
local id, lease = sub(ARGV[2], 1, 16), un('>I8', ARGV[2], 17)
local h, r, v = look(id)
if not h or r.state ~= READY or r.lease ~= lease + 1 or r.settled == r.lease then return 0 end
note_time()
acts.cancel(id, h, r, v, ARGV[3])
go_on()
flush()
return 1
