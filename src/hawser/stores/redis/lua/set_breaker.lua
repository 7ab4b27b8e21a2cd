-- KEYS[1]: prefix. ARGV: now, task, its breaker as it was read ('' is none), as it is from now on ('' is none), 'open', 'still' open or
-- 'closed', when the next probe may start (0 is never), microseconds between probes, then by, reason and about, and audit action ('' is none).
-- Returns: 1 when it was written, 0 when the breaker is not as it was read.
-- Changes the breaker of a task.
-- uses: counts audit
local task, before, after, open, probe_at, every = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
if (call('HGET', P .. 'breakers', task) or '') ~= before then return 0 end
if after == '' then call('HDEL', P .. 'breakers', task) else call('HSET', P .. 'breakers', task, after) end
local probe = open == 'still' and call('HGET', P .. 'probes', task)
if probe then call('HSET', P .. 'probes', task, sub(probe, 1, 8) .. pk('>I8', every) .. sub(probe, 17))
elseif open ~= 'closed' then call('HSET', P .. 'probes', task, pk('>I8I8I8', probe_at, every, 0))
else call('HDEL', P .. 'probes', task) end
if ARGV[11] ~= '' then audit(ARGV[8], ARGV[11], 'task:' .. task, 0, ARGV[9], ARGV[10]) end
call('PUBLISH', P .. 'wake', '')
return 1
