-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of the script that prunes.
-- Finds what workers of the release before have ended or released without a word to those that it concerns.
-- Note the ends of jobs that others wait for and that such a worker has ended: it went on with none. So many looks at a time: `missed` has how
-- far the walk through `held` came, the rest of its last page, and how far the walk came through what the first of these waits for.
-- A job that is nowhere was done and not kept: who removes a dead one says so, in `going` if some are still to be told.
local function find_missed(looks)
  if not any_held then return end
  local at, noted = call('HMGET', P .. 'missed', 'held', 'page', 'within'), {}
  local cursor, page, within = at[1] or '0', at[2] or '', at[3] or '0'
  repeat
    if page == '' then
      local found = call('HSCAN', P .. 'held', cursor, 'COUNT', 100)
      cursor = found[1]
      for i = 1, #found[2], 2 do page = page .. found[2][i] end
    end
    while page ~= '' and looks > 0 do
      local waiter = sub(page, 1, 16)
      local about = held_of(waiter)
      local found = about and call('SSCAN', P .. 'd:' .. waiter, within, 'COUNT', 100) or {'0', {}}
      local on = about and (about[3] == true and 1 or about[3] or 0)
      for _, id in ipairs(found[2]) do
        local state, died, is_batch = batches.standing(id)
        noted[id] = noted[id] or (not state and call('HEXISTS', P .. 'going', id) == 1)
        state = state or DONE
        if not noted[id] and (batches.dooms(state, died, on) or is_over(state, died, on)) then
          noted[id] = true
          over[#over + 1] = {id, state, false, died, is_batch}
        end
      end
      looks, within = looks - #found[2] - 1, found[1]
      if within == '0' then page = sub(page, 17) end
    end
  until looks <= 0 or (page == '' and cursor == '0')
  if page == '' and cursor == '0' then call('DEL', P .. 'missed')
  else call('HSET', P .. 'missed', 'held', cursor, 'page', page, 'within', within) end
end

-- Let groups know of their jobs that such a worker has released: it wrote the new time in the lane only. They stand first in it, as no claim
-- takes them. Some lanes at a time, beginning with another queue each second. Gives whether there were any.
local function find_released(count)
  local some, queues, looks = false, call('SMEMBERS', P .. 'queues'), 20 * count
  local from = #queues > 0 and floor(now / 1000000) % #queues or 0
  for n = 1, #queues do
    local queue = queues[(from + n) % #queues + 1]
    for _, field in ipairs(call('HKEYS', P .. 'n:' .. queue)) do
      local number, kind = match(field, '^%d|(%d+)|(%w)$')
      number = tonumber(number)
      local due = looks > 0 and kind == GROUPED[TIMED] and call('ZRANGEBYSCORE', place(number, kind), '-inf', num(now), 'WITHSCORES', 'LIMIT', 0, count) or {}
      looks = looks - #due / 2
      for i = 1, #due, 2 do
        local h, _, v = look(sub(due[i], 9))
        local group = h and group_of(v, h)
        if group and call('ZSCORE', group_place(number, kind, group), due[i]) ~= due[i + 1] then
          join_members(number, kind, group, tonumber(due[i + 1]), due[i])
          reopen_group(lane(number).t, group)
          some = true
        end
      end
    end
  end
  return some
end

-- Count the members of running batches that such a worker has ended. A walk through the members of a batch, so many looks at a time, finds how
-- many are live, dead and cancelled; it holds if the batch did not change meanwhile. `recounting` has how far it came.
local recounts = {}

function recounts.look_at_own(w, most)
  local key = P .. 'x:b:' .. uuid(w.id)
  local members = call('ZRANGEBYLEX', key, w.behind == '' and '-' or '(' .. w.behind, '+', 'LIMIT', 0, most)
  for _, member in ipairs(members) do
    local h, r = look(member)
    if not h then call('ZREM', key, member)
    elseif r.state <= RUNNING then w.live = w.live + 1
    elseif r.state ~= DONE then w[STATE[r.state]] = w[STATE[r.state]] + 1 end
  end
  if #members < most then w.part = 'others' else w.behind = members[most] end
  return #members
end

-- What is not its own job is counted one by one.
function recounts.look_at_others(w, most)
  local page = call('HSCAN', P .. 'bo:' .. w.id, w.scan, 'COUNT', most)
  for i = 1, #page[2], 2 do
    local counted = tonumber(page[2][i + 1])
    if counted <= RUNNING then
      w.live = w.live + 1
      batches.count_again(page[2][i], batches.standing(page[2][i]) or DONE)
    elseif counted ~= DONE then w[STATE[counted]] = w[STATE[counted]] + 1 end
  end
  w.scan = page[1]
  if w.scan == '0' then w.part = 'over' end
  return #page[2] / 2
end

-- Those that are neither live nor counted as ended: what is not found among the dead and the cancelled was done.
function recounts.correct(w, b)
  local missing = b.members - b.done - b.dead - b.given_up - w.live
  if missing <= 0 then return end
  local c, dead = batches.touch(w.id), min(missing, max(0, w.dead - b.dead))
  local given_up = min(missing - dead, max(0, w.cancelled - b.given_up))
  c[DEAD], c[CANCELLED], c[DONE] = c[DEAD] + dead, c[CANCELLED] + given_up, c[DONE] + missing - dead - given_up
  c.died = c.died or dead > 0
end

local function recount_batches(looks)
  if not any_held then return end
  local kept = call('GET', P .. 'recounting')
  local w = kept and cmsgpack.unpack(kept) or {id = '', part = 'over'}
  while looks > 0 do
    local b = w.part ~= 'over' and batches.read(w.id)
    if not b or b.state ~= 'running' or (b.turn or 0) ~= w.turn then
      local id = call('ZRANGEBYLEX', P .. 'bs:running', w.id == '' and '-' or '(' .. w.id, '+', 'LIMIT', 0, 1)[1]
      if not id then
        call('DEL', P .. 'recounting')
        return
      end
      b = batches.read(id)
      w = {id = id, turn = b.turn or 0, part = 'own', behind = '', scan = '0', live = 0, dead = 0, cancelled = 0}
    end
    looks = looks - 1 - (w.part == 'own' and recounts.look_at_own(w, min(looks, 100)) or recounts.look_at_others(w, 100))
    if w.part == 'over' then recounts.correct(w, b) end
  end
  call('SET', P .. 'recounting', cmsgpack.pack(w))
end
