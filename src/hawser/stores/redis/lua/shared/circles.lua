-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that add jobs.
-- Finds circles of jobs and batches that would wait for each other, before one is written: a new one leads from a batch over one of its new
-- members to what that member waits for, and from there back to the batch.
-- `found` has by batch what waits for it, `links` by batch what its new members wait for.
local circles = {most = 10000, found = {}, links = {}}

local function may_wait(id) return held_of(id) or batches.read(id) end

-- Who waits for a job or a batch, what counts either, and the batch of a job: each is given to `take`. False when they are too many.
function circles.step(id, take)
  if call('SCARD', P .. 'w:' .. id) > circles.most then return false end
  for _, waiter in ipairs(call('SMEMBERS', P .. 'w:' .. id)) do
    if held_of(waiter) and call('SISMEMBER', P .. 'd:' .. waiter, id) == 1 then take(waiter) end
  end
  for _, batch in ipairs(call('SMEMBERS', P .. 'bi:' .. id)) do take(batch) end
  local h, r, v = look(id)
  local own = h and r.state <= RUNNING and batches.of(v, h)
  if own then take(own) end
  return true
end

-- A batch and what waits for it, directly or over others.
function circles.behind(batch)
  local f, left = {ids = {[batch] = true}, n = 1}, {batch}
  local function take(id)
    if f.ids[id] then return end
    f.ids[id], f.n = true, f.n + 1
    left[#left + 1] = id
  end
  while #left > 0 and f.n <= circles.most do
    if not circles.step(table.remove(left), take) then f.n = circles.most + 1 end
  end
  return f
end

local function join_found(f, other)
  for id in pairs(other.ids) do
    if not f.ids[id] then f.ids[id], f.n = true, f.n + 1 end
  end
end

local function any_found(f, ids)
  for id in pairs(ids) do
    if f.ids[id] then return true end
  end
  return false
end

function circles.all_behind(batch)
  local f = circles.found[batch]
  if f then return f end
  f = circles.behind(batch)
  for other, upstream in pairs(circles.links) do
    if any_found(f, upstream) then join_found(f, circles.found[other]) end
  end
  circles.found[batch] = f
  return f
end

-- Why a member that waits for these cannot be added, and for what of them; nil when it can, and counts from now on.
function circles.judge(batch, upstream)
  local waiting, some = {}, false
  for _, id in ipairs(upstream) do
    if may_wait(id) then waiting[id], some = true, true end
  end
  if not some then return nil end
  local f = circles.all_behind(batch)
  for _, id in ipairs(upstream) do
    if f.ids[id] then return 'circle', id end
  end
  if f.n > circles.most then return 'crowd', '' end
  circles.links[batch] = circles.links[batch] or {}
  for id in pairs(waiting) do circles.links[batch][id] = true end
  for _, other in pairs(circles.found) do
    if any_found(other, waiting) then join_found(other, f) end
  end
  return nil
end

-- What the jobs of a call wait for of what was there before it, by job: what waits for a new job waits for what that one waits for. Where a key
-- is held, the holder is waited for, and counts, in the place of the job.
function circles.upstream_of(jobs, answers, stands_for)
  local roots = {}
  for i, j in ipairs(jobs) do
    if stands_for[j.id] then
      roots[j.id] = {stands_for[j.id]}
    elseif sub(answers[i], 1, 1) == '1' then
      local ids, seen = {}, {}
      for _, id in ipairs(j.waits_for or {}) do
        id = stands_for[id] or id
        for _, root in ipairs(roots[id] or {id}) do
          if not seen[root] then ids[#ids + 1] = root end
          seen[root] = true
        end
      end
      roots[j.id] = ids
    end
  end
  return roots
end
