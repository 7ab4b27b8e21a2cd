-- KEYS[1]: prefix. ARGV: now, id, turn, microseconds of silence.
-- Returns: nothing.
-- Lets another process go on with a bulk operation at once.
-- uses: bulks
local o = operation(ARGV[2])
if o and o[FIELD.state] == 'running' and o[FIELD.turn] == tonumber(ARGV[3]) then
  o[FIELD.seen] = now - tonumber(ARGV[4])
  keep(o)
end
