-- name: take_turns
-- Claim jobs with groups, by turns: which, and how many places are the turn of the jobs without a group. The jobs' ids and leases are for
-- `given_out`, as text: nobody else reads them.
select now, version, ungrouped, first_turns, seqs, ids::text, leases::text from hawser.serve_turns($1::bigint, $2::bigint, $3::bigint, $4::text,
    $5::smallint, $6::integer[], $7::integer[], $8::bigint[], $9::integer, $10::integer, $11::text, $12::bigint, $13::bigint, $14::uuid[],
    $15::integer[], $16::bigint[], $17::integer[], $18::integer[], $19::integer[], $20::bigint, $21::integer, $22::integer[], $23::smallint[],
    $24::bigint[], $25::bigint[])

-- name: probe_turns
-- Claim the probe of a task whose breaker is open, where its jobs have groups.
select max(now) as now, max(version) as version, max(ungrouped) as ungrouped, max(first_turns) as first_turns, max(seqs) as seqs,
    array_remove(array_agg(id), null)::text as ids, array_remove(array_agg(lease), null)::text as leases
from hawser.probe_turns($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text,
    $6::smallint, $7::integer[], $8::integer[], $9::bigint[], $10::integer, $11::integer, $12::text, $13::bigint, $14::bigint, $15::uuid[],
    $16::integer[], $17::bigint[], $18::integer[], $19::integer[], $20::integer[], $21::bigint, $22::integer)

-- name: given_out
-- The jobs that `take_turns` has given out, in the columns of `take`. Apart from it: what a claimer is slow to read must not hold the
-- lock that all claims of a queue wait for. All rows are found in one walk along the index, see `finish_plain`.
with given as materialized (
    select array_agg(w.id order by w.id) as ids, array_agg(w.lease order by w.id) as leases
    from unnest($1::text::uuid[], $2::text::bigint[]) as w(id, lease)
)
select 0::bigint as now, 0::bigint as version, false as mixed, j.seq, j.id::text, j.lane, j.attempt, j.max_attempts, j.lease, j.run_at,
    j.enqueued_at, j.crashes, j.returned, [[claimed text of j]]
from given as g cross join lateral (
    select * from hawser.job as j where j.id = any (g.ids) and j.running and j.lease = g.leases[width_bucket(j.id, g.ids)]
) as j

-- name: arrive
-- Jobs have come to groups.
insert into hawser.arrived (lane, group_name, due_at, waited) select * from unnest($1::integer[], $2::text[], $3::bigint[], $4::boolean[])

-- name: next_turn
-- When a group of these lanes may be served: at once if jobs have come to one, or one has a turn and a due job that is not left to
-- others, or a job has left a group that a limit keeps back. An ordered group of which a job is left to others does not count. And the
-- version of the lane catalog. $4 the lanes whose groups are ordered, $5 the limits per group, $6 the turns from which on to look.
select hawser.now($1), (select version from hawser.control), case when hawser.have_arrivals($2::integer[])
    or exists (
        select from unnest($2::integer[], $6::bigint[]) as l(lane, from_turn) cross join lateral (
            select from hawser.group_turn as t where t.lane = l.lane and t.turn >= l.from_turn and (cardinality($3::uuid[]) = 0 or exists (
                select 1 where t.lane <> all ($4::integer[]) or not exists (
                    select from hawser.job as j where j.id = any ($3) and j.group_name = t.group_name)
            ) and exists (
                select from hawser.job as j where j.lane = t.lane and j.group_name = t.group_name and j.run_at >= t.begin_at
                    and j.run_at <= hawser.now($1) and not j.running and j.id <> all ($3)))
            limit 1
        ) as t
    ) or exists (
        select from unnest($5::integer[]) as w(id) cross join lateral (
            select m.seen from hawser.meter as m where m.id = w.id order by m.epoch desc limit 1
        ) as m cross join lateral (
            select from hawser.ended_runs(w.id, m.seen) limit 1
        ) as f
    ) then 0 else (
        select min(t.due_at) from unnest($2::integer[]) as l(lane) cross join lateral (
            select t.due_at from hawser.group_turn as t where t.lane = l.lane and t.due_at is not null order by t.due_at limit 1
        ) as t
    ) end

-- name: groups_due_since
-- By lane since when jobs of groups are due: of the group whose turn it is, and of one that jobs have come to, or whose time has come,
-- since a claim looked. $2 the lanes, $3 the turns from which on to look.
select l.lane, (
    select min(j.run_at) from (
        (select t.group_name, t.begin_at from hawser.group_turn as t where t.lane = l.lane and t.turn >= l.from_turn order by t.turn limit 1)
        union all
        (select t.group_name, t.begin_at from hawser.group_turn as t where t.lane = l.lane and t.due_at <= $1::bigint order by t.due_at limit 1)
        union all
        (select a.group_name, a.due_at from hawser.arrived as a
            where a.ctid = any (array(select n from hawser.arrivals(l.lane, hawser.known(l.lane)) as n)) and a.due_at <= $1 limit 1)
    ) as g cross join (values (4), (5), (6), (7)) as k(kind) cross join lateral (
        select j.run_at from hawser.job as j where j.lane = l.lane and j.group_name = g.group_name and j.kind = k.kind
            and j.run_at >= g.begin_at and j.run_at <= $1 and not j.running
        order by j.run_at, j.seq limit 1
    ) as j
) as since from unnest($2::integer[], $3::bigint[]) as l(lane, from_turn)

-- name: look_at_all_groups
-- After the clock was set back: what is known of when groups are due is not true any more.
select hawser.look_at_all_groups()

-- name: forget_ungrouped
-- Turns of jobs without a group where no group is left.
delete from hawser.ungrouped_turn as u where not exists (
    select from hawser.lane as l join hawser.group_turn as t on t.lane = l.id and not t.idle
    where l.queue = u.queue and l.priority = u.priority)

-- name: forget_idle_groups
-- Forget groups of a queue that have had nothing waiting for $3 microseconds, up to $4 of them; gives how many.
select hawser.forget_idle_groups($1::bigint, $2::text, $3::bigint, $4::integer)

-- name: set_weight
-- How many places a turn a group is offered.
insert into hawser.weight (queue, group_name, weight) values ($1, $2, $3)
on conflict (queue, group_name) do update set weight = excluded.weight

-- name: clear_weight
-- The group is offered one place a turn.
delete from hawser.weight where queue = $1 and group_name = $2

-- name: weights
-- The weights of one queue, or of all.
select queue, group_name, weight from hawser.weight where $1::text is null or queue = $1 order by queue collate "C", group_name collate "C"

-- name: group_wait
-- What keeps a waiting job of a group back.
select said, runs, started, opens_at, first::text, first_runs, groups, jobs from hawser.group_wait($1::bigint, $2::uuid, $3::integer)
