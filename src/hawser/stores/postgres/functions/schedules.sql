-- Schedules are put forward with their jobs.

-- Puts schedules forward, each with its jobs or not at all, and answers for each place: done, skipped, repeated or stale. No
-- schedule may stand twice in one call. `of_` says to which place a job belongs. The rows are locked in one order, so that
-- there is no deadlock.
create or replace function hawser.fire(
    given bigint, names text[], expects text[], revisions text[], dues bigint[], abouts text[],
    lives uuid[], other_dues bigint[], other_abouts text[],
    of_ integer[], made integer, ids uuid[], lanes integer[], run_ats bigint[], max_attempts_ integer[], wake text[],
    default_attempts integer, default_timeout double precision, [[given parameters]]
) returns text[] language plpgsql as $$
declare
    at bigint := hawser.now(given);
    first_day integer := least((select min(t) from unnest(new_tick) as t), at) / 86400000000 - 1;
    said text[];
    created text[];
    new record;
begin
    perform from hawser.schedule as s where s.name = any(names) order by s.name for update;
    select array_agg(
        case when s.revision = w.revision then 'repeated' when s.revision is distinct from w.expect then 'stale'
            when w.other is not null and exists (select from hawser.job as j where j.id = w.live) then 'skipped' else 'done' end
        order by w.n
    ) into said
    from unnest(names, expects, revisions, lives, other_abouts) with ordinality as w(name, expect, revision, live, other, n)
    left join hawser.schedule as s on s.name = w.name;

    update hawser.schedule as s set revision = w.revision,
        due_at = case said[w.n] when 'done' then w.due else w.other_due end,
        about = case said[w.n] when 'done' then w.about else w.other end
    from unnest(names, expects, revisions, dues, abouts, other_dues, other_abouts)
        with ordinality as w(name, expect, revision, due, about, other_due, other, n)
    where s.name = w.name and w.expect is not null and said[w.n] in ('done', 'skipped');

    -- Another process may have created the same a moment ago: then this one comes too late.
    with made_ as (
        insert into hawser.schedule as s (name, revision, due_at, about)
        select w.name, w.revision, w.due, w.about
        from unnest(names, expects, revisions, dues, abouts) with ordinality as w(name, expect, revision, due, about, n)
        where w.expect is null and said[w.n] = 'done' order by w.name
        on conflict (name) do nothing returning s.name
    )
    select coalesce(array_agg(m.name), '{}') into created from made_ as m;
    select array_agg(case when w.expect is null and said[w.n] = 'done' and w.name <> all (created) then 'stale' else said[w.n] end order by w.n)
    into said from unnest(names, expects) with ordinality as w(name, expect, n);

    select array_agg(w.id order by w.n) as ids, array_agg(w.lane order by w.n) as lanes, array_agg(w.run_at order by w.n) as run_ats,
        array_agg(w.attempts order by w.n) as attempts, [[given gathered of w]]
    into new
    from unnest(of_, ids, lanes, run_ats, max_attempts_, [[given arrays]])
        with ordinality as w(place, id, lane, run_at, attempts, [[given]], n)
    where said[w.place] = 'done' and (w.tick is null or not (
        exists (select from hawser.job as j where j.tick is not null and j.schedule = names[w.place] and j.tick = w.tick)
        or exists (select from hawser.failed as f where f.tick is not null and f.schedule = names[w.place] and f.tick = w.tick)
        or exists (select from hawser.done as d
            where d.tick is not null and d.schedule = names[w.place] and d.tick = w.tick and d.day >= first_day)));
    if new.ids is not null then
        perform hawser.enqueue(given, made, new.ids, new.lanes, new.run_ats, null::bigint[], new.attempts, true, false, wake,
            null::integer, default_attempts, default_timeout, [[given of new]]);
    end if;
    return said;
end
$$;
