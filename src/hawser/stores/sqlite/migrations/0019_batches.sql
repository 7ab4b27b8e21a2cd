-- Batches. `batch` of a job is the id of the batch that it counts in; the column was made for a number, and takes a text as it is.
-- `counts` of its members are kept in the write that changes a member. `cancelling` is not null while members are still to be cancelled: the id
-- of the last one that was looked at.
create table hawser_batch (
    id text primary key,
    name text not null,
    parent text,
    created_at integer not null,
    state text not null default 'open',
    closed integer not null default 0,
    cancelled integer not null default 0,
    reason text,
    by text,
    ended_at integer,
    members integer not null default 0,
    done integer not null default 0,
    dead integer not null default 0,
    given_up integer not null default 0, -- members that are cancelled
    died integer not null default 0,
    then_job text,
    success_job text,
    dead_job text,
    cancelling text
) without rowid;
create index hawser_batch_state on hawser_batch (state, id);
create index hawser_batch_ended on hawser_batch (state, ended_at) where ended_at is not null;
create index hawser_batch_cancelling on hawser_batch (id) where cancelling is not null;
-- A batch, too, may wait for a job, and for another batch: `counted` is the state in which it counts what is not its own job. For a job
-- that waits it is null. `any_end` is 0 for done, 1 for any end, 2 for a death.
alter table hawser_dependency add column counted text;
