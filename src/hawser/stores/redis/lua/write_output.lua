-- KEYS[1]: prefix. ARGV: now, the most bytes and the most chunks of a job; then for each output id(16) lease(8), the attempt, how many chunks
-- of the run come before, how many there are, and these.
-- Returns: for each output how many chunks its job has, how many bytes, and how many chunks of the run; '' when the lease is not the
-- current one.
-- Keeps what runs have written, fenced, behind what their jobs have. Each chunk knows its place in its run, and the size of all up to it.
-- uses: counts lanes fresh_lists records turns clock
local out, i = {}, 4
local most_bytes, most_chunks = tonumber(ARGV[2]), tonumber(ARGV[3])
note_time()
while i <= #ARGV do
  local id, lease, attempt = sub(ARGV[i], 1, 16), un('>I8', ARGV[i], 17), tonumber(ARGV[i + 1])
  local first, count = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local h, r = look(id)
  if not h or r.state ~= RUNNING or r.lease ~= lease then
    out[#out + 1] = ''
  else
    local key, total, place = P .. 'out:' .. id, 0, 0
    local number = call('LLEN', key)
    if number > 0 then
      local last = cmsgpack.unpack(call('LINDEX', key, -1))
      total = last[1]
      if last[3] == num(lease) then place = last[2] end
    end
    local new = {}
    if first <= place then
      for n = place - first + 1, count do
        local body = ARGV[i + 3 + n]
        if number + 1 > most_chunks or total + #body > most_bytes then break end
        number, total, place = number + 1, total + #body, place + 1
        new[#new + 1] = cmsgpack.pack({total, place, num(lease), attempt, num(now), body})
      end
    end
    if #new > 0 then
      many('RPUSH', key, new)
      if r.extra ~= 1 then
        r.extra = 1
        put(id, r)
      end
    end
    out[#out + 1] = {number, total, place}
  end
  i = i + 4 + count
end
flush()
return out
