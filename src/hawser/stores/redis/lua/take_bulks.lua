-- KEYS[1]: prefix. ARGV: now, owner, limit, microseconds of silence.
-- Returns: now and the operations taken over.
-- Takes over bulk operations that no process runs any more.
-- uses: bulks
local out, silence = {num(now)}, tonumber(ARGV[4])
for _, id in ipairs(call('ZRANGE', P .. 'bulkids', 0, -1)) do
  if #out > tonumber(ARGV[3]) then break end
  local o = operation(id)
  if o[FIELD.state] == 'running' and math.abs(now - o[FIELD.seen]) >= silence then
    o[FIELD.owner], o[FIELD.turn], o[FIELD.seen] = ARGV[2], o[FIELD.turn] + 1, now
    out[#out + 1] = keep(o)
  end
end
return out
