-- KEYS[1]: prefix. ARGV: now, then for each settlement id(16) lease(8) keep(1) count of jobs that follow(2) and, unless it is done
-- without a result, the steps (msgpack); followed by these jobs.
-- Returns: for each settlement a letter (S settled, R repeated, L lost), task, queue, state (-1 when lost), microseconds until it is
-- due again (-1 unless ready), attempt, attempts that it may have; or the number of settlements in front of the one that is answered alike. Last 'more' when some who wait for these jobs are still to be told.
-- Before that 'rest' when settlements behind these are still to be sent.
-- Writes outcomes, each fenced by its lease number, each together with the jobs that follow from it.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake limits ending dependencies waiting
local out, at, wake, ids, specials, known = {}, 2, false, {}, 0, {}
-- What is not plain costs several times as much: a script settles as many as `SPECIAL` of that, and leaves the rest to the next.
local SPECIAL = 300
local PLAIN = {}
for n = 1, 3 do PLAIN[n] = {DONE, 'done', 0, true, true, false, false, false, false, false, false, false} end
note_time()

-- The jobs are read together: a call for each would be most of what a plain settlement costs. The types of the keys that they will be
-- written to are looked at first.
do
  local alone = {}
  while at <= #ARGV do
    local text = ARGV[at]
    local follow = un('>I2', text, 26)
    ids[#ids + 1] = sub(text, 1, 16)
    alone[#ids] = #text == 27
    if follow > 0 then
      local jobs = {}
      for j = 1, follow do jobs[j] = arriving(ARGV[at + j]) end
      types.need_for(jobs)
      types.need_apart(jobs)
    end
    at = at + 1 + follow
  end
  known.values, known.records = fetch(ids, 'b:', 'm:')
  local number, plain
  for i = 1, #ids do
    local m = known.records[i]
    local here = m and sub(m, RECLEN - 3, RECLEN)
    if here and (here ~= number or plain ~= alone[i]) then
      number, plain = here, alone[i]
      types.need_end(un('>I4', here), plain)
    end
  end
  types.looked = true
end
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

-- A job that has nothing but its payload, came to its end as done and adds nothing: most are so. They are counted together and written
-- together, and no table is made for any.
local plain = {alike = {}, kept = {}, finished = {}, gone = {false, false}, met = {}}

-- The place in the answer of the first settlement that is answered alike; counts one more.
function plain.answer(number, attempt, most, keep)
  local p = plain.last
  if not p or p.number ~= number or p.attempt ~= attempt or p.most ~= most or p.keep ~= keep then
    local name = fmt('%d|%d|%d|%s', number, attempt, most, keep and 'k' or '')
    p = plain.alike[name]
    if not p then
      p = {number = number, attempt = attempt, most = most, keep = keep, count = 0, at = #out}
      plain.alike[name] = p
    end
    plain.last = p
  end
  p.count = p.count + 1
  if p.count > 1 then return p.at end
  local l = lane(number)
  return {'S', l.t, l.q, DONE, '-1', attempt, most}
end

-- What was read is for `look` from now on: a settlement may change other jobs.
function plain.give_up(from)
  plain.write()
  if plain.given_up then return end
  plain.given_up = true
  for i = from, #ids do
    if not plain.met[ids[i]] then ahead[ids[i]] = {known.values[i], known.records[i]} end
  end
end

-- Settle the job if it is of that kind; nil when it is not.
function plain.settle(i, text)
  if not text or #text ~= 27 or any_held or any_limit or sub(text, 26) ~= '\0\0' then return nil end
  local id, v, m = ids[i], known.values[i], known.records[i]
  if plain.given_up then
    local here = ahead[id]
    v, m = here and here[1], here and here[2]
  elseif plain.met[id] then
    return nil
  end
  if not v or not m or byte(v, HEADLEN) > 0 or UNGROUPED[char(byte(v, HEADLEN - 1))] then return nil end
  local state, kind, asked, extra, lease, attempt, returned, crashes, _, _, given, started, claim, run_at, _, number = un(REC, m)
  if state ~= RUNNING or lease ~= un('>I8', text, 17) or asked + extra > 0 then return nil end
  local keep, k = byte(text, 25) == 1, bucket(id)
  plain.met[id], ahead[id] = true, nil
  ended[claim] = (ended[claim] or 0) + 1
  if kind == 48 then fresh_lane.let_go(number, un('>I8', v, 17)) end
  if keep then
    local w = plain.kept[k]
    if not w then w = {} plain.kept[k] = w end
    m = pk(REC, DONE, kind, 0, 0, lease, attempt, returned, crashes, lease, 0, given, started, claim, run_at, now, number)
      .. worker_named(claim)
    w[#w + 1] = id
    w[#w + 1] = m
    local f = plain.finished[number]
    if not f then f = {} plain.finished[number] = f end
    f[#f + 1] = id
  else
    local r = removed[k]
    if not r then r = {} removed[k] = r end
    r[#r + 1] = id
    ahead[id] = plain.gone
  end
  return plain.answer(number, attempt, un('>I4', v, 33), keep)
end

-- Write what was settled so; before anything reads a job anew.
function plain.write()
  for _, p in pairs(plain.alike) do
    local l = lane(p.number)
    tally(l.q, l.t, 'done', p.count)
    tally(l.q, l.t, 'ended:' .. fmt('%d', min(p.attempt, 99)), p.count)
    add('s', l.q .. '|running', -p.count)
    if p.keep then add('s', l.q .. '|done', p.count) end
  end
  for k, w in pairs(plain.kept) do many('HSET', P .. 'm:' .. k, w) end
  for number, f in pairs(plain.finished) do
    local name, stamp = lane(number).t .. '|done', pk('>I8', now)
    for i, id in ipairs(f) do f[i] = stamp .. id end
    many('RPUSH', P .. 'f:' .. name, f)
    call('SADD', P .. 'finished', name)
  end
  plain.alike, plain.kept, plain.finished, plain.last = {}, {}, {}, nil
end

-- Settle the one that `at` has come to; gives how many jobs follow from it.
local function settle_apart(text)
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
  return count
end

while at <= #ARGV do
  local text, i = ARGV[at], #out + 1
  local answer = plain.settle(i, text)
  while answer do
    out[i] = answer
    at, i = at + 1, i + 1
    text = ARGV[at]
    answer = plain.settle(i, text)
  end
  if not text or specials == SPECIAL then break end
  plain.give_up(i)
  specials = specials + 1
  at = at + 1 + settle_apart(text)
end
plain.write()
close_claims()
wake = go_on() or wake
flush()
if at <= #ARGV then out[#out + 1] = 'rest' end
if batches.more then out[#out + 1] = 'more' end
if wake then call('PUBLISH', P .. 'wake', '') end
return out
