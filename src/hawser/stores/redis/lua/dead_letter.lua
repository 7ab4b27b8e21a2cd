-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' is none), most ids in a record, then id(16) lease(8) and fingerprint of each job.
-- Returns: a word for each id; nothing, and nothing is written, when a lease is not the one that the fingerprint was made for.
-- Ends waiting jobs as dead.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake ending dependencies audit acting
local named, kinds = {}, {}
for i = 6, #ARGV do named[i - 5] = sub(ARGV[i], 1, 16) end
look_ahead(named)
named = {}
for i = 6, #ARGV do
  local id, lease = sub(ARGV[i], 1, 16), un('>I8', ARGV[i], 17)
  local h, r = look(id)
  if h and r.lease ~= lease then return {} end
  named[#named + 1], kinds[id] = id, sub(ARGV[i], 25)
end

function acts.dead_letter(id, h, r, v, reason)
  if r.state ~= READY or held_of(id) then return 'wrong_state' end
  local l = lane(r.lane)
  r.run_at = due_of(id, h, r)
  leave_lane(id, r, h, v, true)
  r.state = DEAD
  set_reason(id, r, reason)
  tally(l.q, l.t, 'dead')
  finish(id, r, h, v)
  join_group(id, r, kinds[id])
  put(id, r)
  return 'done'
end

note_time()
local answers = act_on('dead_letter', ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), named)
go_on()
flush()
return answers
