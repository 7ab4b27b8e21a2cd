-- The requests that callers may repeat, by caller and the key that the caller gave: a hash of the body, and the jobs that were answered.
-- `day` is the first on which one of them may have come to its end.
create table hawser.request (
    caller text not null,
    key text not null,
    digest bytea not null,
    jobs uuid[] not null,
    day integer not null,
    until bigint not null,
    primary key (caller, key)
);
create index request_until on hawser.request (until);

-- Jobs that are there, by their ids.
create function hawser.standing(wanted uuid[], first_day integer) returns table (id uuid, lane integer, body bytea) language sql stable as $$
    select w.id, e.lane, e.body from unnest(wanted) as w(id) cross join lateral (
        select j.lane, j.body from hawser.job as j where j.id = w.id
        union all select f.lane, f.body from hawser.failed as f where f.id = w.id
        union all select d.lane, d.body from hawser.done as d where d.id = w.id and d.day >= first_day
    ) as e
$$;

-- As `enqueue`, and refuses ids that belong to jobs of another task, queue or payload.
create function hawser.enqueue_checked(
    given bigint, made integer, ids uuid[], lanes integer[], bodies bytea[], run_ats bigint[], delays bigint[], max_attempts_ integer[],
    timeouts double precision[], keys text[], key_ttls double precision[], tags_ text[], parents uuid[],
    confirms boolean[], schedules text[], ticks bigint[], unlimited boolean, late boolean, wake text[], patience integer
) returns table (place bigint, holder uuid) language plpgsql as $$
declare
    others jsonb;
    clashes jsonb;
begin
    select jsonb_object_agg(e.place, e.holder) into others from hawser.enqueue(given, made, ids, lanes, bodies, run_ats, delays,
        max_attempts_, timeouts, keys, key_ttls, tags_, parents, confirms, schedules, ticks, unlimited, late, wake, patience) as e;
    if others is null then
        return;
    end if;
    select jsonb_agg(w.id) into clashes from unnest(ids, lanes, bodies) with ordinality as w(id, lane, body, n)
    join hawser.lane as l on l.id = w.lane
    cross join lateral (
        select s.lane, s.body from hawser.standing(array[w.id], (least(made, hawser.now(given) / 86400000000) - 1)::integer) as s limit 1
    ) as e
    join hawser.lane as m on m.id = e.lane
    where (others ->> w.n::text)::uuid = w.id and (e.body <> w.body or (m.queue, m.task) <> (l.queue, l.task));
    if clashes is not null then
        raise exception 'these ids belong to other jobs' using errcode = 'HW003', detail = clashes::text;
    end if;
    return query select o.key::bigint, o.value::uuid from jsonb_each_text(others) as o;
end
$$;
