-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts by which members of batches come, end or wait again.
-- Keeps the counts of batches.
-- A batch is a table in the hash `batches`. `bo:` has what a batch counts without its being its own job, with the state in which it is
-- counted; `turn` counts its changes; `bi:` by job or batch those that count it so. `bs` has all batches and `bs:` those in a state, by id; `be:` those that have ended, by time.
local batches = {changes = {}, names = {'open', 'running', 'done', 'dead', 'cancelled'}}

-- An id as 16 bytes.
function batches.raw(text)
  return (string.gsub(string.gsub(text, '-', ''), '..', function(c) return char(tonumber(c, 16)) end))
end

-- The same for neighbours, which mostly are in one batch.
function batches.id_of(text)
  if text ~= batches.last_text then batches.last_text, batches.last_id = text, batches.raw(text) end
  return batches.last_id
end

function batches.read(id)
  local v = call('HGET', P .. 'batches', id)
  return v and cmsgpack.unpack(v)
end

function batches.keep(id, b) call('HSET', P .. 'batches', id, cmsgpack.pack(b)) end

-- The state of a job that stands as the batch does; ready until it has ended.
function batches.job_state(b)
  return b.state == 'done' and DONE or b.state == 'dead' and DEAD or b.state == 'cancelled' and CANCELLED or READY
end

-- The batch that a job counts in, as 16 bytes; nil when there is none.
function batches.of(v, h)
  if not any_held or not h.indexed then return nil end
  local text = meta_of(v, h).b
  return text and batches.id_of(text)
end

-- Look at the batch again at the end of the script.
function batches.touch(id)
  local c = batches.changes[id]
  if not c then
    c = {members = 0, [DONE] = 0, [DEAD] = 0, [CANCELLED] = 0}
    batches.changes[id] = c
  end
  return c
end

-- A member is in another state; nil stands for not being one. Waiting and running are one state.
function batches.count(id, before, after)
  local c = batches.touch(id)
  c.members = c.members + (after and 1 or 0) - (before and 1 or 0)
  if before and before > RUNNING then c[before] = c[before] - 1 end
  if after and after > RUNNING then c[after] = c[after] + 1 end
  if after == DEAD then c.died = true end
end

-- Why no job can be added; nil when one can. The batch of the job that it follows from takes it although it has ended before: that job was
-- requeued since.
function batches.against(id, own)
  local b = batches.read(id)
  if not b then return 'unknown' end
  if b.cancelled then return 'cancelled' end
  if b.ended and id ~= own then return 'ended' end
  return nil
end

-- Count what is not its own job: a batch inside it, or the job that holds a key.
function batches.join(id, member, state)
  if state <= RUNNING then state = READY end
  if call('HSETNX', P .. 'bo:' .. id, member, state) == 0 then return end
  call('SADD', P .. 'bi:' .. member, id)
  batches.count(id, nil, state)
end

-- Whether a job counts in a batch.
function batches.counts(id, member)
  if call('HEXISTS', P .. 'bo:' .. id, member) == 1 then return true end
  local h, _, v = look(member)
  return h and batches.of(v, h) == id
end

-- What is not its own job stands otherwise than before, for all batches that count it.
function batches.count_again(member, state)
  if state <= RUNNING then state = READY end
  for _, id in ipairs(call('SMEMBERS', P .. 'bi:' .. member)) do
    local before = tonumber(call('HGET', P .. 'bo:' .. id, member))
    if before and before ~= state then
      call('HSET', P .. 'bo:' .. id, member, state)
      batches.count(id, before, state)
    end
  end
end

function batches.place(id, b, state)
  if b.state then
    call('ZREM', P .. 'bs:' .. b.state, id)
    call('ZREM', P .. 'be:' .. b.state, id)
  end
  b.state = state
  if not state then return end
  call('ZADD', P .. 'bs:' .. state, 0, id)
  if state ~= 'open' and state ~= 'running' then call('ZADD', P .. 'be:' .. state, num(b.ended), id) end
end

-- Write the counts that changed; gives the batches that stand otherwise now, as go_on takes them.
function batches.fold()
  local changes, told = batches.changes, {}
  batches.changes = {}
  for id, c in pairs(changes) do
    local b = batches.read(id)
    if b then
      b.members, b.done, b.dead, b.given_up = b.members + c.members, b.done + c[DONE], b.dead + c[DEAD], b.given_up + c[CANCELLED]
      local died, left = c.died and not b.died, b.members - b.done - b.dead - b.given_up
      b.died = b.died or c.died or false
      b.turn = (b.turn or 0) + 1
      local state = not b.closed and 'open' or left > 0 and 'running' or b.dead > 0 and 'dead' or b.given_up > 0 and 'cancelled' or 'done'
      if state ~= b.state then
        if (b.state == 'open' or b.state == 'running') and state ~= 'open' and state ~= 'running' then b.ended = now end
        batches.place(id, b, state)
        died = true
      end
      batches.keep(id, b)
      if died then told[#told + 1] = {id, batches.job_state(b), false, b.died, true} end
    end
  end
  return told
end

-- A job without its batch, or with another one.
function batches.repack(j, text)
  local meta = j.meta or {}
  meta.b = text
  local packed = next(meta) and cmsgpack.pack(meta) or ''
  j.rest = packed .. sub(j.rest, j.metalen + 1)
  j.meta, j.metalen = next(meta) and meta or nil, #packed
  j.batch = text and batches.raw(text)
  if text and floor(j.flags / INDEXED) % 2 == 0 then j.flags = j.flags + INDEXED end
end
