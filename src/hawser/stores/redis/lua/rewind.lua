-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' when not given), most ids in a record, id, whether a step is named, the step.
-- Returns: a word.
-- Runs a dead or cancelled job again, and forgets what was recorded after one of its steps.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake limits ending dependencies audit acting
note_time()
function acts.rewind(id, h, r, v)
  local key, place = P .. 'steps:' .. id, 0
  if ARGV[7] == '1' then
    local named = call('HGET', key, ARGV[8])
    if not named then return 'not_found' end
    place = cmsgpack.unpack(named)[1]
  end
  local answer = acts.requeue(id, h, r, v)
  if answer ~= 'done' then return answer end
  for _, kept in ipairs(call('HVALS', key)) do
    local step = cmsgpack.unpack(kept)
    if step[1] > place then
      if is_open(step) then waits_no_more(id, step) end
      call('HDEL', key, step[2])
    end
  end
  return answer
end
local answers = act_on('rewind', ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), {ARGV[6]})
go_on()
flush()
call('PUBLISH', P .. 'wake', '')
return answers[1]
