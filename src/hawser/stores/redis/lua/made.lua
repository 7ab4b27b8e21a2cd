-- KEYS[1]: prefix. ARGV: now, the name of a request ('' when not given), then ids.
-- Returns: 1 when the request was made before or every id is known, else 0.
-- Says whether an enqueue would add nothing.
-- uses: requests
if ARGV[2] ~= '' and request_named(ARGV[2]) then return 1 end
for i = 3, #ARGV do
  if call('HEXISTS', P .. 'b:' .. bucket(ARGV[i]), ARGV[i]) == 0 then return 0 end
end
return 1
