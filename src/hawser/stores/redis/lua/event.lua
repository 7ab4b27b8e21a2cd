-- KEYS[1]: prefix. ARGV: now, name.
-- Returns: when the event came, until when it is kept, what it says; nothing when it has not come.
-- Reads an event.
-- uses: counts
local v = call('HGET', P .. 'events', ARGV[2])
return v and cmsgpack.unpack(v) or {}
