-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of the script that enqueues.
-- Debounced jobs, as in `stores/debounce.py`: the payload of a call takes the place of an earlier one's. Behind the holder of the key stand
-- the id of the call whose payload it has, and when it is due at the latest (0: never).
local replacements = {}

-- Bytes are compared one by one: the server's locale has a say in how Lua compares texts.
local function is_above(one, other)
  for i = 1, 16 do
    local x, y = byte(one, i), byte(other, i)
    if x ~= y then return x > y end
  end
  return false
end

-- What to answer for a debounced job whose id is not known; nil when it is to be added. And whether its key is free.
function debounce.judge(j)
  local v = call('HGET', scope(j.lane.q, j.lane.t), j.meta.k)
  if not v or #v < 48 then return nil end
  local id, newest, until_ = sub(v, 9, 24), sub(v, 25, 40), un('>I8', v, 41)
  if not is_above(j.id, newest) then return (j.id == newest and '2' or '0') .. id end
  local h, r = look(id)
  if not h or r.lease > 0 then return nil, true end
  local due = now + j.when
  if until_ > 0 then due = min(due, until_) end
  replacements[#replacements + 1] = {id, j, due, until_}
  return '2' .. id
end

local function replace_payload(id, j, due, until_)
  local h, r, v = look(id)
  local l, meta = lane(r.lane), meta_of(v, h)
  leave_lane(id, r, h, v)
  index(id, meta, -1)
  meta.a, meta.e = j.meta.a, j.meta.e and now - h.enqueued + j.meta.e
  index(id, meta, 1)
  if h.expires then h.flags = h.flags - EXPIRES end
  call('ZREM', P .. 'expiries', id)
  if meta.e then
    h.flags = h.flags + EXPIRES
    call('ZADD', P .. 'expiries', num(now + j.meta.e), id)
  end
  if meta.a and floor(h.flags / INDEXED) % 2 == 0 then h.flags = h.flags + INDEXED end
  local packed_meta = cmsgpack.pack(meta)
  h.meta = #packed_meta
  call('HSET', P .. 'b:' .. bucket(id), id, headed(h) .. packed_meta .. sub(j.rest, j.metalen + 1))
  r.run_at, r.kind = due, due > now and TIMED or PAST
  if UNGROUPED[h.kind] then
    r.kind = GROUPED[r.kind]
    join_members(r.lane, r.kind, meta.g, due, pk('>I8', h.seq) .. id)
    reopen_group(l.t, meta.g)
  else
    call('ZADD', place(r.lane, r.kind), num(due), pk('>I8', h.seq) .. id)
  end
  waits(r.lane, r.kind, 1)
  put(id, r)
  call('HSET', scope(l.q, l.t), meta.k, pk('>I8', 0) .. id .. j.id .. pk('>I8', until_))
  writes.together()
end

-- Write the payloads of the calls that were judged.
function debounce.replace()
  for _, each in ipairs(replacements) do replace_payload(unpack(each)) end
  local count = #replacements
  replacements = {}
  return count
end

-- A refused call changes nothing.
function debounce.forget() replacements = {} end
