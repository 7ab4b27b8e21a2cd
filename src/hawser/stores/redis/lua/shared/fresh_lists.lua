-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that put, take or drop fresh jobs.
-- Fresh lanes as lists. An entry is due(8) seq(8) id(16), appended in order of due time.
local fresh_lane = {type = 'list'}

function fresh_lane.last(number) return call('LINDEX', place(number, FRESH), -1) end

function fresh_lane.put(number, entries) many('RPUSH', place(number, FRESH), entries) end

-- Entries that wait, from the place in the lane that `src` has come to.
function fresh_lane.read(src, count) return call('LRANGE', place(src.lane, FRESH), src.at, src.at + count - 1) end

function fresh_lane.first(number, count) return fresh_lane.read({lane = number, at = 0}, count) end

-- Take as many jobs as `taken` from the front. The entries in `left` and `gone` stood among them: those in `left` wait on, in their
-- order, those in `gone` go.
function fresh_lane.take(number, _, taken, left, gone)
  local key = place(number, FRESH)
  call('LPOP', key, taken + #left + #gone)
  for i = #left, 1, -1 do call('LPUSH', key, left[i]) end
end

-- A run that was taken from this lane has ended: nothing of it is left here.
function fresh_lane.let_go() end

function fresh_lane.close() end

function fresh_lane.clear(number) call('UNLINK', place(number, FRESH)) end

function fresh_lane.tidy() end
