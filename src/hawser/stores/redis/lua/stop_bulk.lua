-- KEYS[1]: prefix. ARGV: now, id, by, reason and about ('' when not given).
-- Returns: now and the operation; only now when it is unknown.
-- Ends a running bulk operation, with an audit record.
-- uses: audit bulks
local o = operation(ARGV[2])
if not o then return {num(now)} end
if o[FIELD.state] == 'running' then
  o[FIELD.state], o[FIELD.ended] = 'stopped', now
  keep(o)
  audit(ARGV[3], 'stop_operation', 'operation:' .. ARGV[2], 0, ARGV[4], ARGV[5])
end
return {num(now), cmsgpack.pack(o)}
