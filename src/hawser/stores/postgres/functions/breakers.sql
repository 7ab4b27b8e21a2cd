-- The probe of an open breaker.

-- Claims the probe of a task whose breaker is open, under its limits. The breaker is locked first, and asked again then whether a probe is
-- due: of many claimers one gets it, also when the one before has died since.
create or replace function hawser.take_probe_job(
    probed text, given bigint, known_version bigint, lanes integer[], kinds smallint[], run_ats bigint[], seqs bigint[], places integer[],
    worker_ text, lease_us bigint, grace_us bigint, good_until bigint, leave_ uuid[], meters_ integer[], epochs bigint[], first integer[],
    second_ integer[], slack_us bigint, most_changes integer
) returns table (
    now bigint, version bigint, mixed boolean, seq bigint, id text, lane integer, attempt integer, max_attempts integer, lease bigint,
    run_at bigint, enqueued_at bigint, crashes integer, returned integer, [[claimed columns]]
) language plpgsql as $$
#variable_conflict use_column
declare
    one record;
begin
    perform from hawser.breaker as b where b.task = probed and b.open and b.probe_at <= hawser.now(given) for update;
    if not found then
        return query select hawser.now(given), known_version, false, null::bigint, null::text, null::integer, null::integer, null::integer,
            null::bigint, null::bigint, null::bigint, null::integer, null::integer, [[claimed nulls]];
        return;
    end if;
    for one in select * from hawser.take_limited_jobs(given, known_version, lanes, kinds, run_ats, seqs, places, worker_, lease_us, grace_us,
        good_until, leave_, meters_, epochs, first, second_, slack_us, most_changes)
    loop
        if one.seq is not null then
            update hawser.breaker as b set probe_at = one.now + b.probe_every, probe_id = one.id::uuid, probe_lease = one.lease
            where b.task = probed;
            update hawser.control as c set version = greatest(c.version + 1, hawser.now(null));
        end if;
        select one.now, one.version, one.mixed, one.seq, one.id, one.lane, one.attempt, one.max_attempts, one.lease, one.run_at,
            one.enqueued_at, one.crashes, one.returned, [[claimed of one]]
        into now, version, mixed, seq, id, lane, attempt, max_attempts, lease, run_at, enqueued_at, crashes, returned, [[claimed]];
        return next;
    end loop;
end
$$;

-- Claims the probe of a task whose breaker is open, where its jobs have groups; see `take_probe_job` and `take_turns`.
create or replace function hawser.probe_turns(
    probed text, given bigint, expected bigint, good_until bigint, queue_ text, priority_ smallint, lanes integer[], rooms integer[],
    from_turns bigint[], places integer, ungrouped_due integer, worker_ text, lease_us bigint, grace bigint, without uuid[],
    meters_ integer[], epochs bigint[], first integer[], second_ integer[], own integer[], slack_us bigint, most_changes integer
) returns table (now bigint, version bigint, ungrouped integer, first_turns bigint[], seqs bigint[], id uuid, lease bigint) language plpgsql as $$
#variable_conflict use_column
declare
    one record;
begin
    perform from hawser.breaker as b where b.task = probed and b.open and b.probe_at <= hawser.now(given) for update;
    if not found then
        return query select hawser.now(given), expected, 0, from_turns, '{}'::bigint[], null::uuid, null::bigint;
        return;
    end if;
    for one in select * from hawser.take_turns(given, expected, good_until, queue_, priority_, lanes, rooms, from_turns, least(places, 1),
        ungrouped_due, worker_, lease_us, grace, without, meters_, epochs, first, second_, own, slack_us, most_changes)
    loop
        if one.id is not null then
            update hawser.breaker as b set probe_at = one.now + b.probe_every, probe_id = one.id, probe_lease = one.lease where b.task = probed;
            update hawser.control as c set version = greatest(c.version + 1, hawser.now(null));
        end if;
        return query select one.now, one.version, one.ungrouped, one.first_turns, one.seqs, one.id, one.lease;
    end loop;
end
$$;
