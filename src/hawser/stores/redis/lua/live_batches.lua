-- KEYS[1]: prefix. ARGV: now.
-- Returns: how many batches are open, how many run.
-- Counts the batches that have not ended.
-- uses:
return {call('ZCARD', P .. 'bs:open'), call('ZCARD', P .. 'bs:running')}
