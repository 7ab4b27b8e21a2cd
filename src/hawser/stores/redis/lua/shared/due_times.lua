-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that show or cancel waiting jobs.
-- When a waiting job is due: its lane knows, also after the clock was set back.
local function due_of(id, h, r)
  if r.state ~= READY or #set_back_times() == 0 then return r.run_at end
  local member = pk('>I8', h.seq) .. id
  local score = call('ZSCORE', place(r.lane, r.kind == FRESH and PAST or r.kind), member)
  if score then return tonumber(score) end
  return effective(r.run_at, h.seq)
end
