-- KEYS[1]: prefix. ARGV: now, limit, worker, lease in microseconds, turn, room (msgpack map), tasks to leave (msgpack list),
-- jobs to leave (ids joined), '1' to pass over jobs that are past their expiry or '', then queue, places ('' is all), most ('' is any) for each share.
-- Returns: 'expired' when jobs are past their expiry and not to be passed over: some are to be cancelled first. 'again' when all that was looked at
-- was dropped or put aside, and there is more. 'empty' when no job waits in these queues. Else for each job id(16) lease(8) attempt(4) crashes(4) due(8); its header, meta and body; and its lane.
-- Takes due jobs under a lease. A claim that finds nothing writes nothing: each write would cost a sync.
-- uses: counts lanes fresh_lists records turns clock pauses audit limits rooms group_order claim_sources claim_turns

-- Of the levels below the first that has a due job, the one that has aged most.
local function aged_level(from, due_by)
  local first, best, oldest = true, nil, due_by
  for _, level in ipairs(from) do
    local due = due_since(level)
    if due and not first and (due < oldest or (due == oldest and not best)) then best, oldest = level, due end
    if due then first = false end
  end
  return best
end

-- A tenth of the places goes first to a lower priority that has waited for very long.
local function take_aged(queue, from, places)
  local after = places > 0 and #from > 1 and ageing_of(queue)
  local level = after and aged_level(from, now - after)
  if not level then return 0 end
  local taken = {}
  if level.lanes then taken = take_turns(level, places) else fill(taken, level, places, now - after) end
  for _, e in ipairs(taken) do chosen[#chosen + 1] = e end
  return #taken
end

local function offer(queue, places)
  places = min(places, most[queue] or places)
  if places <= 0 then return end
  if not opened[queue] then opened[queue] = levels(queue) end
  local got = take_aged(queue, opened[queue], floor((places + turn % 10) / 10))
  for _, level in ipairs(opened[queue]) do
    local want = places - got
    if want <= 0 then break end
    local taken = level.lanes and take_turns(level, want) or pick(level, want, turn)
    for _, e in ipairs(taken) do chosen[#chosen + 1] = e end
    got = got + #taken
  end
  if most[queue] then most[queue] = most[queue] - got end
end

local shares = {}
for i = 10, #ARGV, 3 do
  shares[#shares + 1] = {ARGV[i], tonumber(ARGV[i + 1])}
  local places = any_limit and room_under('queue', ARGV[i])
  most[ARGV[i]] = tonumber(ARGV[i + 2])
  if places then most[ARGV[i]] = min(places, most[ARGV[i]] or places) end
end
for _, share in ipairs(shares) do
  local free = limit - #chosen
  offer(share[1], share[2] and min(free, share[2]) or free)
end
for _, share in ipairs(shares) do offer(share[1], limit - #chosen) end

-- An entry without a job is what an enqueue has left that broke off. It goes before anything else is written, and is no longer in the way;
-- it was never counted.
local ids, orphans = {}, false
for i, e in ipairs(chosen) do ids[i] = e[3] end
local b, m = fetch(ids, 'b:', 'm:')
for i, e in ipairs(chosen) do
  if not b[i] then
    local src = e[4]
    orphans = true
    if src.kind == FRESH then call('HINCRBY', P .. 'stale', num(src.lane), 1)
    else
      call('ZREM', src.key, e[5])
      call('ZREM', place(src.lane, src.kind), e[5])
    end
  end
end
if orphans then return 'again' end
-- A key of another type fails here, before anything is taken.
if #chosen > 0 then call('HLEN', P .. 'c:' .. num(tonumber(call('GET', P .. 'claims') or 0) + 1)) end

-- Entries up to the last one taken go; those passed over for being left to others wait on.
for _, src in ipairs(sources) do
  if src.kind == FRESH then
    local count, left, gone, aside = #src.taken > 0 and src.taken[#src.taken][5] or 0, {}, {}, {}
    for _, p in ipairs(src.passed) do
      if p[1] == count + 1 and p[3] ~= true and #src.taken == 0 then count = p[1] end
      if p[1] <= count then
        local those = p[3] == true and left or gone
        those[#those + 1] = p[2]
        if p[3] == 'late' then aside[#aside + 1] = sub(p[2], 9) end
      end
    end
    if count > 0 then
      fresh_lane.take(src.lane, worker, #src.taken, left, gone)
      late.cut = late.cut or src.cut
    end
    if #gone > #aside then add('stale', num(src.lane), #aside - #gone) end
    if #aside > 0 then
      late.put_aside(place(src.lane, PAST), aside)
      waits(src.lane, FRESH, -#aside)
      waits(src.lane, PAST, #aside)
    end
  elseif #src.taken > 0 then
    local members = {}
    for i, e in ipairs(src.taken) do members[i] = e[5] end
    many('ZREM', src.key, members)
    for _, member in ipairs(UNGROUPED[src.kind] and members or {}) do writes.later('ZREM', place(src.lane, src.kind), member) end
  end
  if #src.taken > 0 then
    local l = lane(src.lane)
    waits(src.lane, src.kind, -#src.taken)
    tally(l.q, l.t, 'claimed', #src.taken)
    add('s', l.q .. '|running', #src.taken)
    if any_limit then
      count_runs(l, #src.taken, src.group)
      if src.group then
        local started = {}
        for i, e in ipairs(src.taken) do started[i] = e[3] end
        start_in_group(l.t, src.group, started)
      end
      note_starts('queue', l.q, #src.taken)
      note_starts('task', l.t, #src.taken)
    end
  end
end
for _, opened_levels in pairs(opened) do
  for _, level in ipairs(opened_levels) do if level.opened then close_level(level) end end
end
if #chosen == 0 then
  flush()
  if late.cut then return 'again' end
  for _, share in ipairs(shares) do
    if call('EXISTS', P .. 'n:' .. share[1]) == 1 then return {} end
  end
  return 'empty'
end
note_time()

-- After a failover the numbers given out last may be lost. A server that is not the one that claimed last gives out higher ones
-- than any before.
local base
do
  local EPOCH = 65536
  local info = call('INFO', 'replication')
  local server, before = match(info, 'master_replid:(%w+)'), match(info, 'master_replid2:(%w+)')
  local last = call('HGET', P .. 'epoch', 'server')
  base = tonumber(call('HGET', P .. 'epoch', 'base') or 0)
  if last ~= server then
    if last then base = base + EPOCH end
    call('HSET', P .. 'epoch', 'server', server, 'base', num(base), 'since', num(now))
    -- A restart has a new id, too; at a promotion the old one is kept as the second.
    if last and last == before then
      call('HINCRBY', P .. 'epoch', 'failovers', 1)
      audit('store', 'failover', 'store', 0,
        'a replica was promoted: what the old primary had accepted and not sent to it is lost', '')
    end
  end
end

local claim = call('INCR', P .. 'claims')
local out, writes, first, alike = {}, {}, now + lease_for, {texts = {}}
for i, e in ipairs(chosen) do
  local id, v = ids[i], b[i]
  local timeout, _, number, _, kind = un('>I8I4I4I4B', v, 25)
  local given = min(lease_for, timeout + GRACE)
  local old, lease, attempt, crashes = m[i], base + 1, 1, 0
  if now + given < first then first = now + given end
  local written, said
  if old then
    local r = record(old)
    lease, attempt, crashes = max(r.lease, base) + 1, r.attempt + 1, r.crashes
    r.state, r.asked, r.lease, r.attempt, r.until_, r.given, r.started, r.claim, r.run_at, r.finished, r.worker =
      RUNNING, 0, lease, attempt, now + given, given, now, claim, e[1], 0, ''
    written, said = packed(r), pk('>I8I4I4I8', lease, attempt, crashes, e[1])
  else
    -- Jobs that were enqueued together have the same record.
    if alike.given ~= given or alike.number ~= number or alike.due ~= e[1] or alike.kind ~= kind then
      alike.given, alike.number, alike.due, alike.kind = given, number, e[1], kind
      alike.written = pk(REC, RUNNING, kind, 0, 0, lease, 1, 0, 0, 0, now + given, given, now, claim, e[1], 0, number)
      alike.said = pk('>I8I4I4I8', lease, attempt, crashes, e[1])
    end
    written, said = alike.written, alike.said
  end
  local k = bucket(id)
  local w = writes[k]
  if not w then w = {} writes[k] = w end
  w[#w + 1] = id
  w[#w + 1] = written
  if any_breaker then note_probe(lane(number).t, id, lease) end
  if not alike.texts[number] then alike.texts[number] = lane(number).text end
  out[#out + 1] = id .. said
  out[#out + 1] = v
  out[#out + 1] = alike.texts[number]
end
for k, w in pairs(writes) do many('HSET', P .. 'm:' .. k, w) end
call('HSET', P .. 'c:' .. num(claim), 'worker', worker, 'ids', table.concat(ids), 'open', #ids)
-- Upkeep that rests must hear of the first run.
if call('EXISTS', P .. 'leases') == 0 then call('PUBLISH', P .. 'upkeep', '') end
call('ZADD', P .. 'leases', num(first), num(claim))
flush()
return out
