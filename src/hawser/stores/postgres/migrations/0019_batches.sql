-- Batches. `batch` of a job is the id of the batch that it counts in; so far the column had another type, and nothing in it.
alter table hawser.job drop column batch, add column batch uuid;
alter table hawser.done drop column batch, add column batch uuid;
alter table hawser.failed drop column batch, add column batch uuid;

-- `due`: it is to be looked at although no member has changed. `cancelling`: members are still to be cancelled.
create table hawser.batch (
    id uuid primary key,
    name text not null,
    parent uuid,
    created_at bigint not null,
    state text not null default 'open',
    closed boolean not null default false,
    cancelled boolean not null default false,
    reason text,
    by text,
    ended_at bigint,
    members bigint not null default 0,
    done bigint not null default 0,
    dead bigint not null default 0,
    given_up bigint not null default 0, -- members that are cancelled
    died boolean not null default false,
    death_told boolean not null default false,
    then_job uuid,
    success_job uuid,
    dead_job uuid,
    due boolean not null default false,
    cancelling boolean not null default false
) with (fillfactor = 50);
create index batch_state on hawser.batch (state, id);
create index batch_ended on hawser.batch (state, ended_at) where ended_at is not null;
create index batch_due on hawser.batch (id) where due;
create index batch_cancelling on hawser.batch (id) where cancelling;

-- Members that came, or came to another state: appended in the commit that does that, taken away by who adds them to the batch.
create table hawser.batch_change (
    batch uuid not null,
    members integer not null default 0,
    done integer not null default 0,
    dead integer not null default 0,
    given_up integer not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index batch_change_batch on hawser.batch_change (batch);

-- A batch, too, may wait for a job or for another batch: `counted` is the state in which it counts what is not its own job. For a job that
-- waits it is null. `on_death`: the job waits for a death.
alter table hawser.dependency add column on_death boolean not null default false, add column counted text;
alter table hawser.ended_upstream add column batch boolean not null default false;
