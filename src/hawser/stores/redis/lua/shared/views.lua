-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that show jobs.
-- A whole job: header with meta and body, record, worker, extras, history, lane, due, held.
local function view(id, v, m)
  local h, r = head(v), m and record(m)
  local worker, extras, history = '', {}, {}
  if r then
    worker = r.worker
    if r.state == RUNNING then worker = call('HGET', P .. 'c:' .. num(r.claim), 'worker') or '' end
    if r.extra == 1 then
      extras, history = call('HGETALL', P .. 'o:' .. id), call('LRANGE', P .. 'h:' .. id, 0, -1)
    end
  end
  return {id, v, m or '', worker, extras, history, lane(h.lane).text, num(due_of(id, h, r or unclaimed(h))), held_of(id) and 1 or 0}
end
