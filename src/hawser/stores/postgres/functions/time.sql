-- The store's time, and what a queue holds.

-- The store's time in microseconds; a test may give its own.
create or replace function hawser.now(given bigint) returns bigint language sql volatile parallel safe as $$
    select coalesce(given, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

-- How many jobs of a queue wait.
create or replace function hawser.waiting(wanted text) returns bigint language sql stable as $$
    select coalesce(sum(c.count), 0)::bigint
    from (select lane, name, count from hawser.tally where minute = 0 union all select lane, name, count from hawser.counted where minute = 0) as c
    join hawser.lane as l on l.id = c.lane
    where l.queue = wanted and c.name in ('@fresh', '@timed', '@retrying')
$$;
