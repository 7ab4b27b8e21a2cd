-- KEYS[1]: prefix. ARGV: now; then for each call: how many jobs, request ('' or msgpack [name, digest]), ids judged the same (joined),
-- and the jobs.
-- Returns: for each call a list of answers ('1' created, '2' replaced, '0' neither, and the id), or a refusal that begins with its word.
-- Adds the jobs of several calls, each all or none.
-- uses: counts lanes fresh_lists records turns clock keys batches intake limits ending dependencies requests audit acting debounce
local KEPT = 86400000000
local out, at, some = {}, 2, false

-- The answers that a request had the first time; nil when this is the first time.
local function recall(name, digest)
  local v = request_named(name)
  if not v then return nil end
  local ids = sub(v, 41)
  if sub(v, 9, 40) ~= digest then return {'reused'} end
  local answers = {}
  for i = 1, #ids, 16 do answers[#answers + 1] = '0' .. sub(ids, i, i + 15) end
  return answers
end

local function remember(name, digest, answers)
  local ids = {}
  for i, answer in ipairs(answers) do ids[i] = sub(answer, 2) end
  call('HSET', P .. 'requests', name, pk('>I8', now + KEPT) .. digest .. table.concat(ids))
  call('ZADD', P .. 'requestends', num(now + KEPT), name)
end

note_time()
while at <= #ARGV do
  local count, request, same_ids = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  local jobs, same, name, digest = {}, {}, nil, nil
  for i = 1, count do jobs[i] = arriving(ARGV[at + 2 + i]) end
  for i = 1, #same_ids, 16 do same[sub(same_ids, i, i + 15)] = true end
  at = at + 3 + count
  local answer
  if request ~= '' then
    digest, name = sub(request, 1, 32), sub(request, 33)
    answer = recall(name, digest)
  end
  if not answer then
    debounce.forget()
    local answers, fresh = sort_out(jobs, true, same)
    local stands_for = answers and standing_for(jobs, answers)
    answer = answers and (unknown_upstream(fresh, stands_for) or batches.refused(jobs, answers) or too_deep(fresh))
      or (not answers and fresh) or nil
    if not answer then
      accept(fresh, stands_for)
      some = debounce.replace() > 0 or some
      cancel_doomed()
      batches.join_holders(jobs, answers)
      go_on()
      tally_duplicates(jobs, answers)
      if request ~= '' then remember(name, digest, answers) end
      flush()
      answer = answers
      some = some or #fresh > 0
    end
  end
  out[#out + 1] = answer
end
if some then call('PUBLISH', P .. 'wake', '') end
return out
