-- KEYS[1]: prefix. ARGV: now, id, by ('' leaves no record), reason and about ('' is none), the target of the record.
-- Returns: a word.
-- Says that the producer of a batch adds no more.
-- uses: counts lanes fresh_lists records turns clock keys batches circles types intake limits ending dependencies audit
local id = ARGV[2]
local b = batches.read(id)
if not b then return 'not_found' end
if b.closed then return 'wrong_state' end
note_time()
b.closed = true
batches.keep(id, b)
batches.touch(id)
go_on()
if ARGV[3] ~= '' then audit(ARGV[3], 'close_batch', ARGV[6], 0, ARGV[4], ARGV[5]) end
flush()
call('PUBLISH', P .. 'wake', '')
return 'done'
