-- KEYS[1]: prefix. ARGV: now, audit ('' or msgpack [by, reason, about, action]), then for each advance: msgpack {name, expect, revision,
-- text, due, unless_live (hex), otherwise {revision, text, due}, count of jobs}, followed by the jobs.
-- Returns: a word for each advance.
-- Puts schedules forward and adds the jobs of their ticks, each schedule together with its jobs or not at all.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake audit
local out, at, wake = {}, 3, false
note_time()

local function write(name, s)
  call('HSET', P .. 'schedules', name, s.text)
  call('HSET', P .. 'revisions', name, s.revision)
  call('ZADD', P .. 'schedulenames', 0, name)
  if s.due then call('ZADD', P .. 'scheduledue', num(s.due), name) else call('ZREM', P .. 'scheduledue', name) end
end

local function raw(hex)
  return (string.gsub(hex, '..', function(two) return char(tonumber(two, 16)) end))
end

local function advance(a, jobs)
  local revision = call('HGET', P .. 'revisions', a.name)
  if revision == a.revision then return 'repeated' end
  if revision ~= (a.expect or false) then return 'stale' end
  if a.otherwise and a.unless_live then
    local h, r = look(raw(a.unless_live))
    if h and r.state <= RUNNING then
      write(a.name, a.otherwise)
      return 'skipped'
    end
  end
  write(a.name, a)
  local new = {}
  for _, j in ipairs(jobs) do
    local meta = j.meta or {}
    if not meta.i or call('HEXISTS', P .. 'ticks:' .. meta.s, meta.i) == 0 then new[#new + 1] = j end
  end
  local _, fresh = sort_out(new, false)
  accept(fresh)
  return 'done'
end

while at <= #ARGV do
  local a, jobs = cmsgpack.unpack(ARGV[at]), {}
  for i = 1, a.count do jobs[i] = arriving(ARGV[at + i]) end
  local answer = advance(a, jobs)
  if ARGV[2] ~= '' and (answer == 'done' or answer == 'skipped') then
    local note = cmsgpack.unpack(ARGV[2])
    audit(note[1], note[4], 'schedule:' .. a.name, answer == 'done' and a.count or 0, note[2], note[3])
  end
  wake = wake or a.count > 0
  out[#out + 1] = answer
  at = at + 1 + a.count
end
flush()
call('PUBLISH', P .. (wake and 'wake' or 'upkeep'), '')
return out
