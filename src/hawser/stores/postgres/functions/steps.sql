-- A step, or the end of a run, in a transaction of the handler's own.

-- Records a step in a transaction of its handler's own, with the handler's rows, as the statement `record_steps` does: the time of the
-- record; null when the run stands no more, or the name is taken. What `finish_inside` says of isolation holds here, too.
create or replace function hawser.record_inside(given bigint, run uuid, run_lease bigint, step_name text, step_value bytea)
returns bigint language plpgsql set enable_seqscan = off as $$
declare
    at_ bigint := hawser.now(given);
    run_lane integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'a step is recorded under read committed only' using errcode = 'HW004',
            detail = current_setting('transaction_isolation');
    end if;
    perform set_config('idle_in_transaction_session_timeout', '10000', true);
    select j.lane into run_lane from hawser.job as j where j.id = run and j.lease = run_lease and j.running for no key update of j;
    if run_lane is null then
        return null;
    end if;
    insert into hawser.step as s (job, name, kind, value, at, lease) values (run, step_name, 'step', step_value, at_, run_lease)
    on conflict (job, name) do nothing;
    if not found then
        return null;
    end if;
    update hawser.job as j set attempt = 1 where j.id = run and j.attempt > 1;
    insert into hawser.counted (minute, lane, name, count) values (at_ / 60000000, run_lane, 'steps', 1);
    return at_;
end
$$;

-- Settles one run as done in a transaction of its handler's own, as the statement `finish` does; null when the run stands no more. An
-- extension of the lease since the transaction began would make it fail under any other isolation than read committed, at every long
-- run: that is refused with its reason.
create or replace function hawser.finish_inside(given bigint, run uuid, run_lease bigint, run_result bytea, keep boolean)
returns integer language plpgsql set enable_seqscan = off as $$
declare
    at bigint := hawser.now(given);
    g hawser.job;
    freed_lane integer;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'a job is settled under read committed only' using errcode = 'HW004',
            detail = current_setting('transaction_isolation');
    end if;
    -- From here on the row of the job is locked, and reclaimers wait for it: a process that is frozen before its commit is cut off.
    perform set_config('idle_in_transaction_session_timeout', '10000', true);
    delete from hawser.job as j where j.id = run and j.lease = run_lease and j.running returning j.* into g;
    if g.id is null then
        return null;
    end if;
    if keep then
        insert into hawser.done (day, finished_at, run_at, lease, attempt, crashes, cancel_asked, result, [[along]], attempts)
        select at / 86400000000, at, g.run_at, g.lease, g.attempt, g.crashes, g.cancel_asked, run_result, [[along of g]],
            case when g.lease > 1 then (
                select json_agg(json_build_array(a.number, a.lease, a.worker, a.started_at, a.ended_at, a.outcome, a.error, a.traceback)
                    order by a.lease)::text
                from hawser.attempt as a where a.job = g.id
            ) end;
    else
        delete from hawser.step as s where s.job = g.id;
        delete from hawser.output as o where o.job = g.id;
    end if;
    delete from hawser.attempt as a where a.job = g.id;
    insert into hawser.ended_upstream (job, state) select g.id, 'done'
    where (select dependencies from hawser.control) and exists (select from hawser.dependency as d where d.job = g.id);
    if g.batch is not null then
        insert into hawser.batch_change (batch, done) values (g.batch, 1);
    end if;
    if g.key is not null and (g.key_ttl < 'infinity' or not keep) then
        delete from hawser.held_key as k where k.job_id = g.id and k.key = g.key and (k.until is null or k.until <= at)
        returning k.lane into freed_lane;
    end if;
    insert into hawser.counted (minute, lane, name, count)
    select case when p.name like '@%' then 0 else at / 60000000 end, g.lane, p.name, p.sign
    from (values ('@running', -1), ('@done', keep::integer), ('done', 1), ('ended:' || least(g.attempt, 99), 1)) as p(name, sign)
    where p.sign <> 0
    union all select 0, freed_lane, '@keys', -1 where freed_lane is not null;
    return g.lane;
end
$$;
