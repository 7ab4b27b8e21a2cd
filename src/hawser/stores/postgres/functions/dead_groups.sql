-- How many dead jobs have the same cause.

-- Counts dead jobs by lane and fingerprint, under minute -1 of the tally. A trigger, since workers of an older version do not know of it.
create or replace function hawser.count_groups() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into hawser.counted (minute, lane, name, count)
        select -1, n.lane, n.fingerprint, count(*) from new_rows as n
        where n.state = 'dead' and n.fingerprint is not null group by n.lane, n.fingerprint;
    elsif tg_op = 'DELETE' then
        insert into hawser.counted (minute, lane, name, count)
        select -1, o.lane, o.fingerprint, -count(*) from old_rows as o
        where o.state = 'dead' and o.fingerprint is not null group by o.lane, o.fingerprint;
    else
        insert into hawser.counted (minute, lane, name, count)
        select -1, c.lane, c.fingerprint, sum(c.sign) from (
            select o.lane, o.fingerprint, -1 as sign from old_rows as o where o.state = 'dead' and o.fingerprint is not null
            union all
            select n.lane, n.fingerprint, 1 from new_rows as n where n.state = 'dead' and n.fingerprint is not null
        ) as c group by c.lane, c.fingerprint having sum(c.sign) <> 0;
    end if;
    return null;
end
$$;
