-- KEYS[1]: prefix. ARGV: now, limit, and for each worker its name and its steps (msgpack: renewed, not renewed).
-- Returns: a list of workers with runs that have run out and whose steps were not given; then id, task, queue, worker, attempt,
-- state, renewed, microseconds until it is due again (-1 unless ready) of each run taken back; whether batches are to be cancelled,
-- whether some who wait for jobs that ended are still to be told, and whether some whose wait is over are still to be woken.
-- Takes back runs whose lease has run out. The entry of a claim is corrected when it comes to the front: extending moves nothing.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies waiting became_due
local CLAIMS, RUNS = 64, 2000
local limit, out, steps, missing, asked = tonumber(ARGV[2]), {}, {}, {}, {}
for i = 3, #ARGV, 2 do steps[ARGV[i]] = cmsgpack.unpack(ARGV[i + 1]) end

do
  local last = tonumber(call('GET', P .. 'clock') or 0)
  if now < last or (now > last and something_became_due(last)) then note_time() end
end

local function take_back(id, r, worker, renewed)
  local h, _, v = look(id)
  local attempt, l = r.attempt, lane(r.lane)
  local step = leave(id, r, h, v, steps[worker][renewed and 1 or 2])
  r.lease = r.lease + 1
  put(id, r)
  out[#out + 1] = {id, l.t, l.q, worker, attempt, r.state, renewed and 1 or 0,
    step[1] == READY and num(step[3]) or '-1'}
end

-- The runs of claims that surface, and when the first of those that stay runs out.
local expired, stays, claims, looked_at = {}, {}, {}, 0
for _, claim in ipairs(limit > 0 and call('ZRANGEBYSCORE', P .. 'leases', '-inf', num(now), 'LIMIT', 0, CLAIMS) or {}) do
  if looked_at > RUNS then break end
  local about = call('HMGET', P .. 'c:' .. claim, 'worker', 'ids')
  local worker, ids = about[1] or '', about[2] or ''
  claims[#claims + 1] = claim
  local named = {}
  for at = 1, #ids, 16 do named[#named + 1] = sub(ids, at, at + 15) end
  look_ahead(named)
  for _, id in ipairs(named) do
    local h, r = look(id)
    looked_at = looked_at + 1
    if h and r.state == RUNNING and num(r.claim) == claim then
      if r.until_ <= now and steps[worker] then
        expired[#expired + 1] = {r.until_, h.seq, id, r, worker, claim}
      else
        stays[claim] = min(stays[claim] or r.until_, r.until_)
        if r.until_ <= now and not asked[worker] then
          asked[worker] = true
          missing[#missing + 1] = worker
        end
      end
    end
  end
end

-- What ran out first is taken back first.
table.sort(expired, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
for i, e in ipairs(expired) do
  if i <= limit then take_back(e[3], e[4], e[5], e[1] - e[4].given > e[4].started)
  else stays[e[6]] = min(stays[e[6]] or e[1], e[1]) end
end
for _, claim in ipairs(claims) do
  if stays[claim] then
    call('ZADD', P .. 'leases', num(stays[claim]), claim)
  else
    call('ZREM', P .. 'leases', claim)
    call('UNLINK', P .. 'c:' .. claim)
  end
end
close_claims()
go_on()
local told = batches.go_on_with_rest()
local woken, more = wake_rest()
flush()
if #out > 0 or woken or told then call('PUBLISH', P .. 'wake', '') end
return {missing, out, call('EXISTS', P .. 'cancelling'), any_held and call('EXISTS', P .. 'going') or 0, more and 1 or 0}
