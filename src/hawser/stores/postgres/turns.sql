-- name: take_turns
-- Claim jobs with groups, by turns: which, and how many places are the turn of the jobs without a group.
select now, version, ungrouped, first_turns, seqs, id::text, lease from hawser.take_turns($1::bigint, $2::bigint, $3::bigint, $4::text,
    $5::smallint, $6::integer[], $7::integer[], $8::bigint[], $9::integer, $10::integer, $11::text, $12::bigint, $13::bigint, $14::uuid[],
    $15::integer[], $16::bigint[], $17::integer[], $18::integer[], $19::bigint, $20::integer)

-- name: given_out
-- The jobs that `take_turns` has given out, in the columns of `take`. Apart from it: what a claimer is slow to read must not hold the
-- lock that all claims of a queue wait for.
select 0::bigint as now, 0::bigint as version, false as mixed, j.seq, j.id::text, j.lane, j.attempt, j.max_attempts, j.lease, j.run_at,
    j.enqueued_at, j.crashes, j.returned, [[claimed text of j]]
from unnest($1::uuid[], $2::bigint[]) with ordinality as w(id, lease, n)
join hawser.job as j on j.id = any (array[w.id]) and j.lease = w.lease and j.running order by w.n

-- name: arrive
-- Jobs have come to groups.
insert into hawser.arrived (lane, group_name, due_at) select * from unnest($1::integer[], $2::text[], $3::bigint[])

-- name: next_turn
-- When a group of these lanes may be served: at once if jobs have come to one, or one has a turn and a due job that is not left to
-- others. And the number of the directory.
select hawser.now($1), (select version from hawser.control), case when exists (select from hawser.arrived where lane = any($2::integer[]))
    or exists (
        select from unnest($2::integer[]) as l(lane) cross join lateral (
            select from hawser.group_turn as t where t.lane = l.lane and t.turn is not null and (cardinality($3::uuid[]) = 0 or exists (
                select from hawser.job as j where j.lane = t.lane and j.group_name = t.group_name and j.run_at >= t.begin_at
                    and j.run_at <= hawser.now($1) and not j.running and j.id <> all ($3)))
            limit 1
        ) as t
    ) then 0 else (
        select min(t.due_at) from unnest($2::integer[]) as l(lane) cross join lateral (
            select t.due_at from hawser.group_turn as t where t.lane = l.lane and t.due_at is not null order by t.due_at limit 1
        ) as t
    ) end

-- name: look_at_all_groups
-- After the clock was set back: what is known of when groups are due is not true any more.
with come as (update hawser.arrived set due_at = 0)
update hawser.group_turn set turn = coalesce(turn, nextval('hawser.turns')), due_at = null, begin_at = 0

-- name: forget_ungrouped
-- Turns of jobs without a group where no group is left.
delete from hawser.ungrouped_turn as u where not exists (
    select from hawser.lane as l join hawser.group_turn as t on t.lane = l.id where l.queue = u.queue and l.priority = u.priority)

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
