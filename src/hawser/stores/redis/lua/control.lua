-- KEYS[1]: prefix. ARGV: now, by, reason and about ('' when not given), action, target, what to write, then its arguments.
-- Returns: 1 when something changed, else 0.
-- Sets or ends a pause, a limit, a policy or an API key, and leaves an audit record if anything changed.
-- uses: counts audit
local by, reason, about, action, target, what = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local a, b, c = ARGV[8], ARGV[9], ARGV[10]
local writes = {}

function writes.nothing() return true end

function writes.pause()
  call('HSET', P .. 'pauses', a, cmsgpack.pack({now, tonumber(b), reason, by}))
  return true
end

function writes.resume()
  local v = call('HGET', P .. 'pauses', a)
  if not v then return false end
  call('HDEL', P .. 'pauses', a)
  local until_ = cmsgpack.unpack(v)[2]
  return until_ == 0 or until_ > now
end

-- A field of a hash, or none when the value is empty.
function writes.set()
  if c == '' then call('HDEL', P .. a, b) else call('HSET', P .. a, b, c) end
  return true
end

function writes.policy()
  if b == '' then call('HDEL', P .. 'policies', a) else call('HSET', P .. 'policies', a, b) end
  if c == '' then call('HDEL', P .. 'maxes', a) else call('HSET', P .. 'maxes', a, c) end
  return true
end

function writes.put_key()
  local until_ = c ~= '' and now + tonumber(c) or 0
  return call('HSETNX', P .. 'apikeys', a, cmsgpack.pack({b, now, until_, 0, 0})) == 1
end

function writes.revoke_key()
  local v = call('HGET', P .. 'apikeys', a)
  if not v then return false end
  local key = cmsgpack.unpack(v)
  if key[4] > 0 then return false end
  key[4] = now
  call('HSET', P .. 'apikeys', a, cmsgpack.pack(key))
  return true
end

local changed = writes[what]()
if changed then audit(by, action, target, 0, reason, about) end
if changed and what == 'resume' then call('PUBLISH', P .. 'wake', '') end
return changed and 1 or 0
