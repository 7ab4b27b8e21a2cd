-- KEYS[1]: prefix. ARGV: now, how many members at most.
-- Returns: 1 when there may be more to do, else 0.
-- Cancels members of a batch that is to be cancelled.
-- `cancelling` has for each such batch the last member that was looked at.
-- uses: counts lanes fresh_lists records turns due_times clock keys batches circles types intake limits ending dependencies audit acting
local id, most = call('HRANDFIELD', P .. 'cancelling'), tonumber(ARGV[2])
if not id then return 0 end
local b, behind = batches.read(id), call('HGET', P .. 'cancelling', id)
if not b then
  call('HDEL', P .. 'cancelling', id)
  return 1
end
note_time()
local from = behind == '' and '-' or '(' .. behind
local members = call('ZRANGEBYLEX', P .. 'x:b:' .. uuid(id), from, '+', 'LIMIT', 0, most)
look_ahead(members)
for _, member in ipairs(members) do
  local h, r, v = look(member)
  if h then acts.cancel(member, h, r, v, b.reason) end
end
if #members == most then call('HSET', P .. 'cancelling', id, members[most]) else call('HDEL', P .. 'cancelling', id) end
go_on()
flush()
call('PUBLISH', P .. 'wake', '')
return 1
