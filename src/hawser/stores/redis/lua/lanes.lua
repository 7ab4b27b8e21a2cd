-- KEYS[1]: prefix. ARGV: now.
-- Returns: now, and of every lane that holds jobs its name, count, oldest due.
-- Counts the jobs that wait, by queue, task and priority.
-- uses: counts lanes fresh_lists records oldest
local found, out = {}, {num(now)}

for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
  local fields = call('HGETALL', P .. 'n:' .. queue)
  for i = 1, #fields, 2 do
    local number, kind = match(fields[i], '^%d|(%d+)|(%w)$')
    number = tonumber(number)
    local f = found[number] or {lane(number).text, 0, nil}
    local due = oldest_of(number, kind) or now
    f[2] = f[2] + fields[i + 1]
    f[3] = min(f[3] or due, due)
    found[number] = f
  end
end
for _, f in pairs(found) do out[#out + 1] = {f[1], num(f[2]), num(f[3])} end
return out
