-- KEYS[1]: prefix. ARGV: now; then for each call: how many jobs, request ('' or msgpack [name, digest]), ids judged the same (joined),
-- and the jobs.
-- Returns: for each call 'created' when each of its jobs was, a list of answers ('1' created, '2' replaced, '0' neither, and the id), or a
-- refusal that begins with its word.
-- Adds the jobs of several calls, each all or none.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies requests audit acting debounce
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
do
  local calls, all, apart = {}, {}, false
  while at <= #ARGV do
    local count, request, same_ids = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
    local jobs = {}
    for i = 1, count do
      jobs[i] = arriving(ARGV[at + 2 + i])
      all[#all + 1] = jobs[i]
    end
    apart = apart or request ~= '' or same_ids ~= ''
    calls[#calls + 1] = {jobs = jobs, request = request, same = same_ids}
    at = at + 3 + count
  end

  -- What one call comes to is found out once.
  local sorted

  -- Whether all jobs of all calls could be added at once: most calls bring nothing but new jobs, and to judge and to count each of them
  -- apart is most of what a small one costs.
  local function added_together()
    if apart or batches.special then return false end
    local answers, fresh = sort_out(all, true)
    if #calls == 1 then sorted = {answers, fresh} end
    if not answers or #fresh < #all or too_deep(fresh) then return false end
    accept(fresh)
    some = #fresh > 0
    flush()
    return true
  end

  local function add_apart(c)
    local jobs, same, name, digest, answer = c.jobs, {}, nil, nil, nil
    for i = 1, #c.same, 16 do same[sub(c.same, i, i + 15)] = true end
    if c.request ~= '' then
      digest, name = sub(c.request, 1, 32), sub(c.request, 33)
      answer = recall(name, digest)
    end
    if answer then return answer end
    debounce.forget()
    local answers, fresh = unpack(sorted or {}, 1, 2)
    if not sorted then answers, fresh = sort_out(jobs, true, same) end
    local stands_for = answers and standing_for(jobs, answers)
    answer = answers and (unknown_upstream(fresh, stands_for) or batches.refused(jobs, answers) or too_deep(fresh))
      or (not answers and fresh) or nil
    if answer then return answer end
    accept(fresh, stands_for)
    some = debounce.replace() > 0 or some
    cancel_doomed()
    batches.join_holders(jobs, answers)
    go_on()
    tally_duplicates(jobs, answers)
    if c.request ~= '' then remember(name, digest, answers) end
    flush()
    some = some or #fresh > 0
    return answers
  end

  -- A call alone writes nothing before `accept`, which looks at the types for new jobs. A debounced job that is not new writes, too.
  local look_first = #calls > 1 or batches.special
  if look_first then
    types.need_for(all)
    types.looked = true
  end
  local together = added_together()
  if not together and look_first then types.need_apart(all) end
  for i, c in ipairs(calls) do out[i] = together and {'created'} or add_apart(c) end
end
if some then call('PUBLISH', P .. 'wake', '') end
return out
