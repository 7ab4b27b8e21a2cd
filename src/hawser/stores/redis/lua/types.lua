-- KEYS[1]: prefix. ARGV: now, where to go on, how many keys to pass, what fresh lanes are kept in, then how names begin and their types.
-- Returns: where to go on ('0' at the end), and a key of another type with its type, or '' twice.
-- Looks for keys of another program among those that a store has many of. What it does not know is left alone: a newer release may have it.
-- uses:
local types, own = {}, #P
for i = 5, #ARGV, 2 do types[ARGV[i]] = ARGV[i + 1] end

local function type_of(name)
  local kind = match(name, '^l:%d+:(%w)')
  if kind then return kind ~= FRESH and 'zset' or ARGV[4] == 'lists' and 'list' or 'stream' end
  return types[match(name, '^%w+:')]
end

local found = call('SCAN', ARGV[2], 'MATCH', P .. '*', 'COUNT', ARGV[3])
for _, key in ipairs(found[2]) do
  local wanted, kind = type_of(sub(key, own + 1)), nil
  if wanted then kind = call('TYPE', key).ok end
  if wanted and kind ~= wanted and kind ~= 'none' then return {found[1], key, kind} end
end
return {found[1], '', ''}
