-- KEYS[1]: prefix. ARGV: now, limit.
-- Returns: now, when the next one behind these is due ('' is never), and the texts of those that are due.
-- Reads the schedules that are due, those due for longest first.
-- uses:
local limit, texts, next_ = tonumber(ARGV[2]), {}, ''
local found = call('ZRANGE', P .. 'scheduledue', 0, limit, 'WITHSCORES')
for i = 1, #found, 2 do
  if tonumber(found[i + 1]) > now or #texts == limit then
    next_ = found[i + 1]
    break
  end
  texts[#texts + 1] = call('HGET', P .. 'schedules', found[i])
end
return {num(now), next_ ~= '' and num(tonumber(next_)) or '', texts}
