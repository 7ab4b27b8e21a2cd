-- KEYS[1]: prefix. ARGV: now, then for each settlement id(16) lease(8) keep(1) count of jobs that follow(2) and, unless it is done
-- without a result, the steps (msgpack); followed by these jobs.
-- Returns: for each settlement a letter (S settled, R repeated, L lost), task, queue, state (-1 when lost), microseconds until it is
-- due again (-1 unless ready), attempt, attempts that it may have.
-- Writes outcomes, each fenced by its lease number, each together with the jobs that follow from it.
-- uses: counts lanes fresh_lists records turns due_times clock keys intake limits ending dependencies
local out, at, wake, ids = {}, 2, false, {}
local DONE_STEP = {DONE, 'done', 0, true, true, false, false, false, false, false, false, false}
local PLAIN = {DONE_STEP, DONE_STEP, DONE_STEP}
note_time()

local function settle(id, r, h, v, text, steps)
  local keep, step = byte(text, 25) == 1, step_for(steps, r, h)
  r.settled = r.lease
  if step[1] ~= DONE or keep then
    leave(id, r, h, v, steps)
    put(id, r)
    wake = wake or r.state == READY
    return step
  end
  -- Nothing of it stays.
  local l = lane(r.lane)
  tally(l.q, l.t, 'done')
  tally(l.q, l.t, 'ended:' .. fmt('%d', min(r.attempt, 99)))
  add('s', l.q .. '|running', -1)
  count_runs(l, -1)
  if r.asked == 1 then call('SREM', P .. 'asked', id) end
  end_run(r)
  remove(id, r, h, v)
  if any_held then over[#over + 1] = {id, DONE, ''} end
  return step
end

while at <= #ARGV do
  local text = ARGV[at]
  local id, lease, count = sub(text, 1, 16), un('>I8', text, 17), un('>I2', text, 26)
  local h, r, v = look(id)
  if r and r.state == RUNNING and r.lease == lease then
    local attempt, l = r.attempt, lane(r.lane)
    local steps = #text > 27 and cmsgpack.unpack(sub(text, 28)) or PLAIN
    local step = settle(id, r, h, v, text, steps)
    wake = wake or (any_limit and (rule('task', l.t) or rule('queue', l.q))) and true
    out[#out + 1] = {'S', l.t, l.q, step[1], step[1] == READY and num(step[3]) or '-1', attempt, h.most}
    if count > 0 then
      local jobs = {}
      for i = 1, count do jobs[i] = arriving(ARGV[at + i]) end
      local answers, fresh = sort_out(jobs, false)
      accept(fresh, standing_for(jobs, answers))
      cancel_doomed()
      tally_duplicates(jobs, answers)
      wake = true
    end
  elseif r and r.state ~= RUNNING and lease > 0 and r.lease == lease and r.settled == lease then
    local l = lane(r.lane)
    out[#out + 1] = {'R', l.t, l.q, r.state, r.state == READY and num(max(0, due_of(id, h, r) - now)) or '-1', r.attempt, h.most}
  else
    local l = r and lane(r.lane) or {q = '', t = ''}
    tally(l.q, l.t, 'stale')
    out[#out + 1] = {'L', l.t, l.q, -1, '-1', 0, 0}
  end
  at = at + 1 + count
end
close_claims()
wake = go_on() or wake
flush()
if wake then call('PUBLISH', P .. 'wake', '') end
return out
