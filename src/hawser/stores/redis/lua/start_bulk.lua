-- KEYS[1]: prefix. ARGV: now, id, plan, owner.
-- Returns: now and the operation.
-- Keeps a new bulk operation; one that is there stays as it is.
-- uses: bulks
local o = operation(ARGV[2])
if not o then
  o = {ARGV[2], ARGV[3], 'running', ARGV[4], 1, false, 0, 0, false, now, now, false}
  keep(o)
  call('ZADD', P .. 'bulkids', 0, ARGV[2])
end
return {num(now), cmsgpack.pack(o)}
