-- What the error of a dead job has in common with others; null until a process has made it, of a job that an older version wrote.
alter table hawser.failed add column fingerprint text;
create index failed_group on hawser.failed (fingerprint, id) where fingerprint is not null;
create index failed_ungrouped on hawser.failed (id) where fingerprint is null and state = 'dead';

-- Counts dead jobs by lane and fingerprint, under minute -1 of the tally. A trigger, since workers of an older version do not know of it.
create function hawser.count_groups() returns trigger language plpgsql as $$
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
create trigger failed_added after insert on hawser.failed referencing new table as new_rows
    for each statement execute function hawser.count_groups();
create trigger failed_gone after delete on hawser.failed referencing old table as old_rows
    for each statement execute function hawser.count_groups();
create trigger failed_changed after update on hawser.failed referencing old table as old_rows new table as new_rows
    for each statement execute function hawser.count_groups();
