-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that put, take or drop fresh jobs.
-- Fresh lanes as streams with one consumer group, whose consumers are the workers. An entry has the job's seq as its id, and due(8) id(16).
-- It is delivered by the claim that takes the job, and deleted when that run has ended. XPENDING shows who holds what; it fences
-- nothing: the lease number in the record does.
local fresh_lane = {type = 'stream'}
do
  local GROUP, TIDIED = 'workers', 20
  local ended = {}

  local function entry_id(e) return num(un('>I8', e, 9)) .. '-0' end

  local function entry_of(found)
    return sub(found[2][2], 1, 8) .. pk('>I8', tonumber(match(found[1], '^%d+'))) .. sub(found[2][2], 9)
  end

  -- What XINFO says of a group or a consumer.
  local function fields(flat)
    local about = {}
    for i = 1, #flat, 2 do about[flat[i]] = flat[i + 1] end
    return about
  end

  -- What is behind this id was not delivered yet.
  local function last_delivered(key)
    for _, flat in ipairs(call('XINFO', 'GROUPS', key)) do
      local group = fields(flat)
      if group.name == GROUP then return group['last-delivered-id'] end
    end
  end

  -- The last entry may be after this moment only when the clock was set back since.
  function fresh_lane.last(number)
    local last = #set_back_times() > 0 and call('XREVRANGE', place(number, FRESH), '+', '-', 'COUNT', 1)[1]
    return last and entry_of(last)
  end

  function fresh_lane.put(number, entries)
    local key = place(number, FRESH)
    if call('EXISTS', key) == 0 then
      call('XGROUP', 'CREATE', key, GROUP, 0, 'MKSTREAM')
      call('SADD', P .. 'streams', num(number))
    end
    for _, e in ipairs(entries) do call('XADD', key, entry_id(e), 'e', sub(e, 1, 8) .. sub(e, 17)) end
  end

  -- Entries that wait, from the place in the lane that `src` has come to.
  function fresh_lane.read(src, count)
    local key = place(src.lane, FRESH)
    src.behind = src.behind or last_delivered(key)
    local found = call('XRANGE', key, '(' .. src.behind, '+', 'COUNT', count)
    if #found > 0 then src.behind = found[#found][1] end
    for i, each in ipairs(found) do found[i] = entry_of(each) end
    return found
  end

  function fresh_lane.first(number, count) return fresh_lane.read({lane = number}, count) end

  -- Take as many jobs as `taken` from the front. The entries in `left` and `gone` stood among them: those in `left` wait on, in their
  -- order, those in `gone` go. An entry cannot stand in front again, so what is left waits in the sorted set beside the stream.
  function fresh_lane.take(number, worker, taken, left, gone)
    local key, ids = place(number, FRESH), {}
    for _, e in ipairs(gone) do ids[#ids + 1] = entry_id(e) end
    for _, e in ipairs(left) do
      ids[#ids + 1] = entry_id(e)
      call('ZADD', place(number, PAST), num(entry_due(e)), sub(e, 9))
    end
    many('XDEL', key, ids)
    waits(number, FRESH, -#left)
    waits(number, PAST, #left)
    if taken > 0 then call('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', taken, 'STREAMS', key, '>') end
  end

  -- A run that was taken from this lane has ended: nothing of it is left here.
  function fresh_lane.let_go(number, seq)
    local ids = ended[number]
    if not ids then ids = {} ended[number] = ids end
    ids[#ids + 1] = num(seq) .. '-0'
  end

  function fresh_lane.close()
    for number, ids in pairs(ended) do
      local key = place(number, FRESH)
      for i = 1, #ids, PIECE do call('XACK', key, GROUP, unpack(ids, i, min(i + PIECE - 1, #ids))) end
      many('XDEL', key, ids)
    end
    ended = {}
  end

  -- What was delivered stays pending, though its entries go, too.
  function fresh_lane.clear(number) call('XTRIM', place(number, FRESH), 'MAXLEN', 0) end

  local function forget_consumers(key, kept)
    for _, flat in ipairs(call('XINFO', 'CONSUMERS', key, GROUP)) do
      local consumer = fields(flat)
      if consumer.pending == 0 and consumer.idle * 1000 >= kept then call('XGROUP', 'DELCONSUMER', key, GROUP, consumer.name) end
    end
  end

  -- Streams without jobs go, and so do consumers that hold nothing and were not heard of for so many microseconds. Some at each call.
  function fresh_lane.tidy(kept)
    for _, number in ipairs(call('SRANDMEMBER', P .. 'streams', TIDIED)) do
      local key = place(tonumber(number), FRESH)
      if call('EXISTS', key) == 0 or (call('XLEN', key) == 0 and call('XPENDING', key, GROUP)[1] == 0) then
        call('UNLINK', key)
        call('SREM', P .. 'streams', number)
      else
        forget_consumers(key, kept)
      end
    end
  end
end
