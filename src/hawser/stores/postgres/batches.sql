-- name: add_batch
-- A new batch; no row when it is there already.
insert into hawser.batch (id, name, parent, created_at, then_job, success_job, dead_job)
values ($2, $3, $4, hawser.now($1), $5, $6, $7) on conflict (id) do nothing returning id

-- name: joinable
-- These batches, so that none of them ends or is forgotten before this transaction does: whether each was cancelled, and whether it has
-- ended before.
select id::text, cancelled, ended_at is not null from hawser.batch where id = any($1::uuid[]) order by id for key share

-- name: join_batches
-- Count new members.
-- $1 a test's clock, $2 the batch of the job that they follow from, $3 batches with $4 how many jobs of their own came, $5 batches each with
-- $6 what they count without its being their own, $7 the day on which the oldest of these was made, $8 what a refusal calls it.
select hawser.join_batches($1::bigint, $2::uuid, $3::uuid[], $4::integer[], $5::uuid[], $6::uuid[], $7::integer, $8::text)

-- name: check_circles
-- Refuse new members that wait for what in turn waits for their batch.
-- $1 batches, each with $2 what a member waits for, $3 how much may wait for a batch, $4 for how many milliseconds to wait for others who ask this.
select hawser.check_circles($1::uuid[], $2::uuid[], $3::integer, $4::integer)

-- name: may_wait
-- Those of these that may wait for others: held jobs, and batches. While there are any, no other transaction adds members that wait.
-- $1 ids, $2 for how many milliseconds to wait for others who do.
select id::text from hawser.may_wait($1::uuid[], $2::integer) as id

-- name: waits_behind
-- Of each of these batches: it and what waits for it, directly or over others, as far as $2 of it.
select b.id::text, w.id::text from unnest($1::uuid[]) as b(id) cross join lateral hawser.behind(b.id, $2::integer) as w(id)

-- name: batch_of
-- The batch that a live job counts in.
select batch::text from hawser.job where id = $1

-- name: batches_of
-- The batches that live jobs count in.
select id::text, batch::text from hawser.job where id = any($1) and batch is not null

-- name: close_batch
-- Its producer adds no more.
update hawser.batch set closed = true, state = 'running', due = true where id = $1 and not closed returning id

-- name: batch_state
-- Where a batch stands.
select state from hawser.batch where id = $1

-- name: cancel_batch
-- A batch that has not ended is to be cancelled.
update hawser.batch set closed = true, cancelled = true, cancelling = true, due = true, reason = $2, by = $3,
    state = case state when 'open' then 'running' else state end
where id = $1 and state in ('open', 'running') returning id

-- name: cancelling
-- The next batch of which members are still to be cancelled.
select id::text from hawser.batch where cancelling and id > $1 order by id limit 1

-- name: cancelled_by
-- Who cancels a batch of which members are still to be cancelled.
select reason, by from hawser.batch where id = $1 and cancelling

-- name: cancel_inside
-- The batches inside one are cancelled with it.
update hawser.batch as b set closed = true, cancelled = true, cancelling = true, due = true, reason = p.reason, by = p.by,
    state = case b.state when 'open' then 'running' else b.state end
from hawser.batch as p cross join lateral (
    select d.job from hawser.dependency as d where d.waiter = p.id and d.counted is not null
) as d
where p.id = $1 and b.id = any (array[d.job]) and b.state in ('open', 'running') and not b.cancelled returning b.id

-- name: uncancelled
-- Some members of a batch that wait, or run and were not asked to end. One that another transaction holds, as that of a handler which is
-- about to end its run does, is not waited for.
select id::text from hawser.job where batch = $1 and not (running and cancel_asked) order by id limit $2 for update skip locked

-- name: all_cancelled
-- None is left, unless a transaction is under way that may add one.
update hawser.batch set cancelling = false where id = any (array(
    select b.id from hawser.batch as b where b.id = $1 and b.cancelling
        and not exists (select from hawser.job as j where j.batch = b.id and not (j.running and j.cancel_asked))
    for update skip locked
)) returning id

-- name: leave_batch
-- A dead job is no member any longer: another has taken its place, and waits.
with gone as (
    update hawser.failed as f set batch = null from (select id, batch from hawser.failed where id = $1 and batch is not null) as o
    where f.id = o.id returning o.batch
)
insert into hawser.batch_change (batch, dead) select g.batch, -1 from gone as g

-- name: stands_in
-- A batch that counted one job counts another in its place, which waits.
insert into hawser.ended_upstream (job, state)
select $1::uuid, 'ready' where exists (select from hawser.dependency as d where d.job = $1 and d.counted is not null)

-- name: batches
-- Some batches with what changed and is not added up yet, newest first; and how many of their members run. $3 batches, or null for all in
-- the state $1 behind the cursor $2. Those that run are counted among the members that have not ended, one batch at a time. For the batches
-- that have more than $5 of these they are counted among the jobs that claims have given out, if these are fewer: of a claim's ids only the
-- length is read to know. Job by job (`limit 1`): the planner would rather read all members and look for each in the ids of its claim.
with some_ as materialized (
    select b.id, b.name, b.parent, b.created_at, b.closed, b.cancelled, b.reason, b.ended_at, b.then_job, b.success_job, b.dead_job,
        b.members + c.members as members, b.done + c.done as done, b.dead + c.dead as dead, b.given_up + c.given_up as given_up,
        b.members + c.members - b.done - c.done - b.dead - c.dead - b.given_up - c.given_up as open
    from (
        select b.* from hawser.batch as b where ($3::uuid[] is null or b.id = any ($3)) and ($1::text is null or b.state = $1) and b.id < $2
        order by b.id desc limit $4
    ) as b cross join lateral (
        select coalesce(sum(c.members), 0)::bigint as members, coalesce(sum(c.done), 0)::bigint as done,
            coalesce(sum(c.dead), 0)::bigint as dead, coalesce(sum(c.given_up), 0)::bigint as given_up
        from hawser.batch_change as c where c.batch = b.id
    ) as c
),
way as materialized (
    select g.ids < m.open as by_claims from (select sum(b.open) as open from some_ as b where b.open > $5) as m cross join lateral (
        select coalesce(sum(pg_column_size(g.jobs)) / 16, 0) as ids from hawser.granted as g where m.open is not null
    ) as g
),
runs as materialized (
    select r.batch, count(*) as n from hawser.granted as g cross join lateral unnest(g.jobs) as w(id) cross join lateral (
        select j.batch from hawser.job as j where j.id = w.id and j.running and j.granted = g.id and j.batch is not null limit 1
    ) as r where (select y.by_claims from way as y) group by r.batch
)
select b.id::text, b.name, b.parent::text, b.created_at, b.closed, b.cancelled, b.reason, b.ended_at, b.members, b.done, b.dead, b.given_up,
    b.then_job::text, b.success_job::text, b.dead_job::text,
    case when b.open > $5 and (select y.by_claims from way as y) then coalesce((select r.n from runs as r where r.batch = b.id), 0)
        else (select count(*) from hawser.job as j where j.batch = b.id and j.running) end
    + (select count(*) from hawser.dependency as d cross join lateral (select j.running from hawser.job as j where j.id = any (array[d.job])) as j
        where d.waiter = b.id and d.counted = 'ready' and j.running)
from some_ as b order by b.id desc

-- name: live_batches
-- How many batches have not ended, by their state.
select state, count(*) from hawser.batch where state in ('open', 'running') group by state

-- name: prune_batches
-- Forget batches that ended long ago, and go on with what waits for them.
with clock as materialized (select hawser.now($1) as now),
gone as (
    delete from hawser.batch as b where b.id = any (array(
        select e.id from clock as c cross join unnest($2::text[], $3::bigint[]) as k(state, kept_for)
        cross join lateral (
            select d.id from hawser.batch as d where d.state = k.state and d.ended_at <= c.now - k.kept_for order by d.ended_at limit $4
        ) as e limit $4
    )) returning b.id
),
counted as (delete from hawser.dependency as d using gone as g where d.waiter = any (array[g.id]))
insert into hawser.ended_upstream (job, state, batch)
select g.id, 'removed', true from gone as g where exists (select from hawser.dependency as d where d.job = g.id)

-- name: recount_batches
-- Count members that ended without a word, in some batches behind $1; gives the last of these.
select hawser.recount_batches($1::uuid, $2::integer, $3::integer)::text
