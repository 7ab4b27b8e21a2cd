-- KEYS[1]: prefix. ARGV: now, then for each settlement id(16) lease(8) keep(1) count of jobs that follow(2) and, unless it is done
-- without a result, the steps (msgpack); followed by these jobs.
-- Returns: for each settlement a letter (S settled, R repeated, L lost), task, queue, state (-1 when lost), microseconds until it is
-- due again (-1 unless ready), attempt, attempts that it may have. Last 'more' when some who wait for these jobs are still to be told.
-- Writes outcomes, each fenced by its lease number, each together with the jobs that follow from it.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches intake limits ending dependencies waiting
local out, at, wake, ids = {}, 2, false, {}
local DONE_STEP = {DONE, 'done', 0, true, true, false, false, false, false, false, false, false}
local PLAIN = {DONE_STEP, DONE_STEP, DONE_STEP}
note_time()

-- The jobs are read together: a call for each would be most of what a plain settlement costs.
while at <= #ARGV do
  ids[#ids + 1] = sub(ARGV[at], 1, 16)
  at = at + 1 + un('>I2', ARGV[at], 26)
end
local b, m = fetch('b:', ids), fetch('m:', ids)
for _, id in ipairs(ids) do ahead[id] = {b[id], m[id]} end
at = 2

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
  local group = UNGROUPED[h.kind] and group_of(v, h)
  add('s', l.q .. '|running', -1)
  count_runs(l, -1, group)
  if group then reopen_group(l.t, group) end
  if r.asked == 1 then call('SREM', P .. 'asked', id) end
  end_run(r, h)
  remove(id, r, h, v)
  if any_held then
    local batch = batches.of(v, h)
    if batch then batches.count(batch, READY, DONE) end
    over[#over + 1] = {id, DONE, false, false, false}
  end
  return step
end

while at <= #ARGV do
  local text = ARGV[at]
  local id, lease, count = sub(text, 1, 16), un('>I8', text, 17), un('>I2', text, 26)
  local h, r, v = look(id)
  if r and r.state == RUNNING and r.lease == lease then
    local attempt, l = r.attempt, lane(r.lane)
    local steps = #text > 27 and cmsgpack.unpack(sub(text, 28)) or PLAIN
    local step, held = settle(id, r, h, v, text, steps), steps[1][13]
    wake = wake or (any_limit and (rule('task', l.t) or rule('queue', l.q))) and true
    out[#out + 1] = {'S', l.t, l.q, step[1], step[1] == READY and not step[13] and num(step[3]) or '-1', attempt, h.most}
    -- The jobs that a run was to wait for are not added when its job ends as cancelled instead.
    if count > 0 and not (held and not step[13]) then
      local jobs = {}
      forget_removed()
      for i = 1, count do jobs[i] = arriving(ARGV[at + i]) end
      batches.follow_on(jobs, batches.of(v, h))
      wake = true
    end
    if step[13] then hold_run(id, step[13]) end
  elseif r and r.state ~= RUNNING and lease > 0 and r.lease == lease and r.settled == lease then
    local l = lane(r.lane)
    out[#out + 1] = {'R', l.t, l.q, r.state, r.state == READY and not held_of(id) and num(max(0, due_of(id, h, r) - now)) or '-1', r.attempt, h.most}
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
if batches.more then out[#out + 1] = 'more' end
if wake then call('PUBLISH', P .. 'wake', '') end
return out
