-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' when not given), id of the dead job, the new job.
-- Returns: a word.
-- Discards a dead job and adds another in its place, with one audit record.
-- uses: counts lanes fresh_lists records turns clock keys intake limits ending audit
local by, reason, about, id = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local h, r, v = look(id)
if not h then return 'not_found' end
if r.state ~= DEAD then return 'wrong_state' end
local jobs = {arriving(ARGV[6])}
local answers, fresh = sort_out(jobs, false)
if sub(answers[1], 2) ~= jobs[1].id then return 'key_taken' end
note_time()
leave_finished(id, r, lane(r.lane))
r.state = CANCELLED
if reason ~= '' then set_extra(id, r, 'reason', reason) else call('HDEL', P .. 'o:' .. id, 'reason') end
local l = lane(r.lane)
tally(l.q, l.t, 'cancelled')
finish(id, r, h, v)
put(id, r)
accept(fresh)
audit(by, 'replace', 'job', 1, reason, about, id)
flush()
call('PUBLISH', P .. 'wake', '')
return 'done'
