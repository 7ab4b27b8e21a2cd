-- KEYS[1]: prefix. ARGV: now, id, by, reason and about ('' is none), the target of the record.
-- Returns: a word.
-- Says that a batch and those inside it are cancelled; the members follow.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies audit
local function is_over_with(b) return b.state ~= 'open' and b.state ~= 'running' end

local first = batches.read(ARGV[2])
if not first then return 'not_found' end
if is_over_with(first) then return 'wrong_state' end
note_time()
local left = {ARGV[2]}
while #left > 0 do
  local id = table.remove(left)
  local b = batches.read(id)
  if b and not is_over_with(b) then
    b.closed, b.cancelled, b.reason = true, true, ARGV[4]
    batches.keep(id, b)
    batches.touch(id)
    call('HSETNX', P .. 'cancelling', id, '')
    for _, member in ipairs(call('HKEYS', P .. 'bo:' .. id)) do left[#left + 1] = member end
  end
end
go_on()
audit(ARGV[3], 'cancel_batch', ARGV[6], 0, ARGV[4], ARGV[5])
flush()
call('PUBLISH', P .. 'wake', '')
return 'done'
