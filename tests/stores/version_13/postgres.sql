-- Statements of the release whose schema was version 13, as its workers send them. Not to be changed.

-- name: take_limited
-- Claim jobs under limits, see the function.
select * from hawser.take_limited($1::bigint, $2::bigint, $3::integer[], $4::smallint[], $5::bigint[], $6::bigint[], $7::integer[],
    $8::text, $9::bigint, $10::bigint, $11::bigint, $12::uuid[], $13::integer[], $14::bigint[], $15::integer[], $16::integer[],
    $17::bigint, $18::integer)

-- name: take_probe
-- Claim the probe of a task whose breaker is open, see the function.
select * from hawser.take_probe($1::text, $2::bigint, $3::bigint, $4::integer[], $5::smallint[], $6::bigint[], $7::bigint[], $8::integer[],
    $9::text, $10::bigint, $11::bigint, $12::bigint, $13::uuid[], $14::integer[], $15::bigint[], $16::integer[], $17::integer[],
    $18::bigint, $19::integer)
