-- KEYS[1]: prefix. ARGV: now, id, parent ('' is none), name, ids of then, on_success and on_dead as texts ('' is none), then these jobs.
-- Returns: 1 when it was added, 0 when it is there already; or a refusal that begins with its word.
-- Adds a batch, and the jobs that it releases.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies
local id, parent, jobs = ARGV[2], ARGV[3], {}
if batches.read(id) then return 0 end
if parent ~= '' and batches.against(parent) then return {'parent', parent, batches.against(parent)} end
for i = 8, #ARGV do jobs[i - 7] = arriving(ARGV[i]) end
local answers, fresh = sort_out(jobs, true)
if not answers then return {'conflict', fresh[2]} end
local refusal = batches.refused(jobs, answers) or too_deep(fresh)
if refusal then return refusal end
note_time()
any_held = true
local b = {name = ARGV[4], created = now, closed = false, cancelled = false, members = 0, done = 0, dead = 0, given_up = 0, died = false,
  parent = parent ~= '' and uuid(parent) or '', then_ = ARGV[5], success = ARGV[6], on_dead = ARGV[7]}
batches.place(id, b, 'open')
batches.keep(id, b)
call('ZADD', P .. 'bs', 0, id)
if parent ~= '' then batches.join(parent, id, READY) end
accept(fresh, {})
go_on()
flush()
return 1
