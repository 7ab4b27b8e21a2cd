-- KEYS[1]: prefix. ARGV: now, limit, the reason.
-- Returns: how many jobs were cancelled.
-- Cancels jobs that wait and are past their expiry. The sorted set `expiries` has the time of each job that expires; one that runs is
-- taken from it, and comes back when it waits again.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake limits ending dependencies audit acting
local past = call('ZRANGEBYSCORE', P .. 'expiries', '-inf', num(now), 'LIMIT', 0, tonumber(ARGV[2]))
local cancelled = 0
if #past == 0 then return 0 end
note_time()
look_ahead(past)
many('ZREM', P .. 'expiries', past)
for _, id in ipairs(past) do
  local h, r, v = look(id)
  if h and r.state == READY then
    acts.cancel(id, h, r, v, ARGV[3])
    cancelled = cancelled + 1
  end
end
go_on()
flush()
return cancelled
