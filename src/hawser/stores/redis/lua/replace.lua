-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' when not given), id of the dead job, the new job.
-- Returns: a word.
-- Discards a dead job and adds another in its place, with one audit record.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies audit
local by, reason, about, id = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local h, r, v = look(id)
if not h then return 'not_found' end
if r.state ~= DEAD then return 'wrong_state' end
local jobs = {arriving(ARGV[6])}
local batch = batches.of(v, h)
if batch then batches.repack(jobs[1], meta_of(v, h).b) end
local answers, fresh = sort_out(jobs, false)
if sub(answers[1], 2) ~= jobs[1].id then return 'key_taken' end
note_time()
if any_held then
  -- Those that wait for the dead job wait for the new one in its place.
  for _, waiter in ipairs(call('SMEMBERS', P .. 'w:' .. id)) do
    if call('SREM', P .. 'd:' .. waiter, id) == 1 then
      call('SADD', P .. 'd:' .. waiter, jobs[1].id)
      call('SADD', P .. 'w:' .. jobs[1].id, waiter)
    end
  end
  call('UNLINK', P .. 'w:' .. id)
  for _, counting in ipairs(call('SMEMBERS', P .. 'bi:' .. id)) do
    batches.count(counting, tonumber(call('HGET', P .. 'bo:' .. counting, id)), nil)
    call('HDEL', P .. 'bo:' .. counting, id)
    batches.join(counting, jobs[1].id, READY)
  end
  call('UNLINK', P .. 'bi:' .. id)
end
if batch then
  -- The new one is a member in its place.
  local meta = meta_of(v, h)
  call('ZREM', P .. 'x:b:' .. meta.b, id)
  meta.b = nil
  local packed = next(meta) and cmsgpack.pack(meta) or ''
  v = sub(v, HEADLEN + h.meta + 1)
  h.meta = #packed
  if not (meta.p or meta.s or meta.g or meta.a) then h.flags, h.indexed = h.flags - INDEXED, false end
  v = headed(h) .. packed .. v
  call('HSET', P .. 'b:' .. bucket(id), id, v)
  batches.count(batch, DEAD, nil)
end
leave_finished(id, r, lane(r.lane))
r.state = CANCELLED
if reason ~= '' then set_extra(id, r, 'reason', reason) else call('HDEL', P .. 'o:' .. id, 'reason') end
local l = lane(r.lane)
tally(l.q, l.t, 'cancelled')
finish(id, r, h, v)
put(id, r)
accept(fresh)
go_on()
audit(by, 'replace', 'job', 1, reason, about, id)
flush()
call('PUBLISH', P .. 'wake', '')
return 'done'
