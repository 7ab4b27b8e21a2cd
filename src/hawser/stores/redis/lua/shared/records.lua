-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that read or write jobs.
-- A job is `b:` (header, meta, body: what changes only when a person changes a waiting job) and `m:` (what changes as it runs; absent
-- while it waits for its first claim as it came).
local HEAD, HEADLEN = '>I8I8I8I8I4I4I4BB', 46
local REC, RECLEN = '>BBBBI8I4I4I4I8I8I8I8I8I8I8I4', 84
local KEYED, INDEXED, EXPIRES = 1, 2, 4

local function head(v)
  local enqueued, run_at, seq, timeout, most, number, meta, kind, flags = un(HEAD, v)
  -- In one piece: a table that is filled field by field grows five times.
  return {enqueued = enqueued, run_at = run_at, seq = seq, timeout = timeout, most = most, lane = number, meta = meta, kind = char(kind),
    flags = flags, keyed = flags % 2 == 1, indexed = flags % EXPIRES >= INDEXED, expires = flags >= EXPIRES}
end

local function headed(h)
  return pk(HEAD, h.enqueued, h.run_at, h.seq, h.timeout, h.most, h.lane, h.meta, byte(h.kind), h.flags)
end

local function meta_of(v, h) return cmsgpack.unpack(sub(v, HEADLEN + 1, HEADLEN + h.meta)) end

local function record(v)
  local state, kind, asked, extra, lease, attempt, returned, crashes, settled, until_, given, started, claim, run_at, finished, number =
    un(REC, v)
  return {state = state, kind = char(kind), asked = asked, extra = extra, lease = lease, attempt = attempt, returned = returned,
    crashes = crashes, settled = settled, until_ = until_, given = given, started = started, claim = claim, run_at = run_at,
    finished = finished, lane = number, worker = sub(v, RECLEN + 1)}
end

local function packed(r)
  return pk(REC, r.state, byte(r.kind), r.asked, r.extra, r.lease, r.attempt, r.returned, r.crashes, r.settled, r.until_, r.given,
    r.started, r.claim, r.run_at, r.finished, r.lane) .. r.worker
end

-- Values that a script has read together, by id: what never changes and the record; both false once the job is removed.
local ahead = {}

-- The record is written by `flush`.
local function put(id, r)
  local k, text = bucket(id), packed(r)
  local by = writes.buckets[k]
  if not by then by = {} writes.buckets[k] = by end
  by[id], writes.put[id], ahead[id] = text, text, nil
end

-- Read these jobs together: `look` knows them from then on.
local function look_ahead(ids)
  local b, m = fetch(ids, 'b:', 'm:')
  for i, id in ipairs(ids) do ahead[id] = {b[i], m[i]} end
end

-- The record of a job that was never claimed.
local function unclaimed(h)
  return {state = READY, kind = h.kind, asked = 0, extra = 0, lease = 0, attempt = 0, returned = 0, crashes = 0, settled = 0,
    until_ = 0, given = 0, started = 0, claim = 0, run_at = h.run_at, finished = 0, lane = h.lane, worker = ''}
end

-- The two values of a job; nil when the job is unknown.
local function values_of(id)
  local known = ahead[id]
  if known then return known[1] or nil, writes.put[id] or known[2] end
  local k = bucket(id)
  local v = call('HGET', P .. 'b:' .. k, id)
  if not v then return nil end
  return v, writes.put[id] or call('HGET', P .. 'm:' .. k, id)
end

-- Header, record and raw value of a job; nil when the job is unknown.
local function look(id)
  local v, m = values_of(id)
  if not v then return nil end
  local h = head(v)
  return h, m and record(m) or unclaimed(h), v
end

local function set_extra(id, r, field, value)
  call('HSET', P .. 'o:' .. id, field, value)
  r.extra = 1
end

-- Whether any job waits for others or any batch is there; such jobs are read and written only then.
local any_held = call('EXISTS', P .. 'held', P .. 'batches') > 0

local function held_of(id)
  local v = any_held and call('HGET', P .. 'held', id)
  return v and cmsgpack.unpack(v)
end
